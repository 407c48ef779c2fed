"""`holdfast job cancel` and `holdfast job delete`: by id, or all jobs that a filter selects."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from holdfast.app.bulk import (
    FINISHED,
    NO_AGE,
    WAITING,
    JobSelection,
    SelectedIds,
    cancel_batch,
    check_reason,
    delete_batch,
)
from holdfast.cli.confirm import require_consent, yes_to_all, yes_to_several
from holdfast.cli.exit_errors import warn
from holdfast.cli.ids import whole_ids
from holdfast.cli.suggested_commands import command
from holdfast.cli.table import console
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration
from holdfast.errors import ConfigError, JobNotFound
from holdfast.model.counted import counted
from holdfast.model.job import JobState
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.values import Cancellation

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")
LONG = 100  # jobs: fewer are changed before a progress bar would be visible
_CANCELLATIONS = {
    Cancellation.CANCELLED: "cancelled",
    Cancellation.ASKED: "is running: its worker, if it has one, will cancel it; it may still complete",
    Cancellation.TOO_LATE: "has already ended",
}
_CANCELLABLE = (*WAITING, JobState.RUNNING)


class SelectedJobs(NamedTuple):
    """A selection, and the ids of its jobs."""

    selection: JobSelection
    ids: SelectedIds


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--state", type=click.Choice([str(state) for state in _CANCELLABLE]), help="All jobs in this state.")
@click.option("--queue", help="All jobs of this queue; without --state those that wait.")
@click.option("--task", help="All jobs of this task; without --state those that wait.")
@click.option("--reason", default="", help="The reason, stored with the job.")
@yes_to_several
@store_options
def cancel(
    target: StoreTarget,
    *,
    ids: tuple[str, ...],
    state: str | None,
    queue: str | None,
    task: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Cancel jobs, by id or by filter; a running job is cancelled by its worker.

    A job that was claimed without a worker receives no request. It is cancelled when it would run again.

    \b
    holdfast job cancel 01a1de74-f8d6 --reason 'ordered twice'
    holdfast job cancel --queue mails --task remind
    """  # noqa: D301
    _check_choice(ids, state, queue, task)
    states = WAITING if state is None else (JobState(state),)
    text = check_reason(reason)

    async def change(app: App) -> bool:
        if not ids:
            await _cancel_selected(app, [JobSelection(one, queue, task) for one in states], text, yes=yes)
            return True
        meant = await whole_ids(app, ids)
        if len(meant) > 1:
            require_consent(f"Cancel {len(meant)} jobs?", yes=yes)
        return all([await _cancel_one(app, job_id, reason) for job_id in meant])

    if not target.run(change):
        click.get_current_context().exit(ExitCode.WRONG)


async def _cancel_selected(app: App, selections: Sequence[JobSelection], reason: str, *, yes: bool) -> None:
    selected = await select(app, selections)
    if not confirmed(selected, "Cancel", yes=yes):
        return
    counts: Counter[Cancellation] = Counter()
    try:
        async for part in in_batches(selected, lambda _, ids: cancel_batch(app, ids, reason), "cancelling"):
            counts += part
    finally:  # a repeat does the rest
        _report_cancelled(counts)


async def _cancel_one(app: App, job_id: str, reason: str) -> bool:
    try:
        cancellation = await app.jobs.cancel(job_id, reason)
    except JobNotFound as error:
        warn(str(error))
        return False
    click.echo(f"{job_id} {_CANCELLATIONS[cancellation]}", err=cancellation is Cancellation.TOO_LATE)
    return cancellation is not Cancellation.TOO_LATE


def _report_cancelled(counts: Counter[Cancellation]) -> None:
    click.echo(f"{counted(counts[Cancellation.CANCELLED], 'job')} cancelled")
    if counts[Cancellation.ASKED]:
        running = counted(counts[Cancellation.ASKED], "running job")
        click.echo(f"{running} will be cancelled by the workers that run them; they may still complete")
    if counts[Cancellation.TOO_LATE]:
        click.echo(f"{counted(counts[Cancellation.TOO_LATE], 'job')} had ended meanwhile", err=True)


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--state", type=click.Choice([str(state) for state in FINISHED]), help="All jobs in this state.")
@click.option("--queue", help="All jobs of this queue; without --state all finished ones.")
@click.option("--task", help="All jobs of this task; without --state all finished ones.")
@click.option("--older-than", type=duration, metavar="DURATION", help="All jobs that ended at least this long ago.")
@yes_to_all
@store_options
def delete(
    target: StoreTarget,
    *,
    ids: tuple[str, ...],
    state: str | None,
    queue: str | None,
    task: str | None,
    older_than: float | None,
    yes: bool,
) -> None:
    """Delete finished jobs for good, by id or by filter: completed, failed and cancelled ones.

    Retention deletes them by itself when they are old enough. The id of a deleted job is forgotten: an enqueue with it
    creates a new job.

    \b
    holdfast job delete 01a1de74-f8d6
    holdfast job delete --state failed --task charge --older-than 7d
    """  # noqa: D301
    _check_choice(ids, state, queue, task, older_than)
    states = FINISHED if state is None else (JobState(state),)
    age = NO_AGE if older_than is None else timedelta(seconds=older_than)

    async def change(app: App) -> bool:
        if not ids:
            await _delete_selected(app, [JobSelection(one, queue, task, age) for one in states], yes=yes)
            return True
        meant = await whole_ids(app, ids)
        require_consent(f"Delete {counted(len(meant), 'job')} for good?", yes=yes)
        return all([await _delete_one(app, job_id) for job_id in meant])

    if not target.run(change):
        click.get_current_context().exit(ExitCode.WRONG)


async def _delete_selected(app: App, selections: Sequence[JobSelection], *, yes: bool) -> None:
    selected = await select(app, selections)
    if not confirmed(selected, "Delete", yes=yes):
        return
    deleted = 0
    try:
        async for part in in_batches(selected, lambda selection, ids: delete_batch(app, ids, selection), "deleting"):
            deleted += part
    finally:  # a repeat does the rest
        click.echo(f"{counted(deleted, 'job')} deleted")


async def _delete_one(app: App, job_id: str) -> bool:
    try:
        await app.jobs.delete(job_id)
    except JobNotFound as error:
        warn(str(error))
        return False
    except ConfigError as error:  # it has not ended
        warn(f"{error}: `{command('job', 'cancel', job_id)}`")
        return False
    click.echo(f"{job_id} deleted")
    return True


def _check_choice(ids: tuple[str, ...], *filters: object) -> None:
    is_filtered = any(given is not None for given in filters)
    if bool(ids) == is_filtered:
        raise click.UsageError("give the ids of jobs, or options that select them, such as --state")


async def select(app: App, selections: Sequence[JobSelection]) -> list[SelectedJobs]:
    """Return the jobs of each selection."""
    return [SelectedJobs(selection, await selection.ids(app)) for selection in selections]


def confirmed(selected: Sequence[SelectedJobs], verb: str, *, yes: bool) -> bool:
    """Ask for confirmation with the counts; return False, after a note, if there is no job."""
    count = sum(len(ids) for _, ids in selected)
    if not count:
        states = " or ".join(selection.state for selection, _ in selected)
        click.echo(f"No jobs{_filters(selected[0].selection)} are {states}.", err=True)
        return False
    some = [(described(selection), len(ids)) for selection, ids in selected if len(ids)]
    parts = some[0][0] if len(some) == 1 else ", ".join(f"{number:,} {text}" for text, number in some)
    require_consent(f"{verb} {counted(count, 'job')} ({parts})?", yes=yes)
    return True


def described(selection: JobSelection) -> str:
    """Return a selection as text."""
    return f"{selection.state}{_filters(selection)}"


def _filters(selection: JobSelection) -> str:
    queue = f" of queue {selection.queue}" if selection.queue else ""
    return f"{queue} of task {selection.task}" if selection.task else queue


async def in_batches(
    selected: Sequence[SelectedJobs], change: Callable[[JobSelection, list[str]], Awaitable[T]], word: str
) -> AsyncIterator[T]:
    """Change the selected jobs batch by batch, with a progress bar on a terminal; yield the answers."""
    from rich.progress import Progress  # only here: importing it takes time

    total = sum(len(ids) for _, ids in selected)
    out = console(stderr=True)
    with Progress(console=out, disable=not out.is_terminal or total < LONG, transient=True) as progress:
        bar = progress.add_task(word, total=total)
        for selection, ids in selected:
            for batch in ids.batches():  # not a new query: it would include jobs that the user has not confirmed
                yield await change(selection, batch)
                progress.advance(bar, len(batch))
