"""`holdfast job retry`: run failed and cancelled jobs again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import click
import msgspec
from rich.progress import Progress

from holdfast.app.app import App
from holdfast.cli.confirm import require_consent, yes_to_several
from holdfast.cli.exit_errors import warn
from holdfast.cli.hints import command
from holdfast.cli.ids import whole_ids
from holdfast.cli.plural import counted
from holdfast.cli.table import console
from holdfast.cli.target import StoreTarget, store_options
from holdfast.errors import JobNotFound, OutcomeUnknown
from holdfast.model.job import JobState
from holdfast.runtime.exit_code import ExitCode

_PAGE = 500
_ID_BYTES = 16
_LONG = 100  # jobs: fewer are retried before a progress bar would be visible


class _Selection(msgspec.Struct, frozen=True):
    """The jobs to retry, selected by state, queue and task."""

    state: JobState
    queue: str | None
    task: str | None

    async def ids(self, app: App) -> AsyncIterator[str]:
        """Yield the ids, page by page."""
        cursor: str | None = None
        while True:
            page = await app.jobs.list(self.state, queue=self.queue, task=self.task, cursor=cursor, limit=_PAGE)
            for job in page.jobs:
                yield job.id
            if page.cursor is None:
                return
            cursor = page.cursor

    def __str__(self) -> str:
        """Return the selection as text."""
        parts = [str(self.state)]
        if self.queue:
            parts.append(f"of queue {self.queue}")
        if self.task:
            parts.append(f"of task {self.task}")
        return " ".join(parts)


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--state", type=click.Choice(["failed", "cancelled"]), help="All jobs in this state, instead of ids.")
@click.option("--queue", help="With --state: only jobs of this queue.")
@click.option("--task", help="With --state: only jobs of this task.")
@click.option("--again", is_flag=True, help="Copy a completed job under a new id.")
@yes_to_several
@store_options
def retry(
    target: StoreTarget,
    *,
    ids: tuple[str, ...],
    state: str | None,
    queue: str | None,
    task: str | None,
    again: bool,
    yes: bool,
) -> None:
    """Run failed or cancelled jobs again, with a new budget of attempts.

    \b
    holdfast job retry 01a1de74-f8d6
    holdfast job retry --state failed --task charge --yes
    """  # noqa: D301
    if bool(ids) == (state is not None):
        raise click.UsageError("give the ids of jobs, or --state for all jobs in a state")
    if state is None and (queue or task):
        raise click.UsageError("--queue and --task need --state: add it")
    if state is not None and again:
        raise click.UsageError("--again copies completed jobs by id: it cannot be combined with --state")

    async def change(app: App) -> bool:
        if state is not None:
            await _retry_selected(app, _Selection(JobState(state), queue, task), yes=yes)
            return True
        meant = await whole_ids(app, ids)
        if len(meant) > 1:
            require_consent(f"Retry {len(meant)} jobs?", yes=yes)
        return all([await _retry_one(app, job_id, again=again) for job_id in meant])

    if not target.run(change):
        click.get_current_context().exit(ExitCode.WRONG)


async def _retry_one(app: App, job_id: str, *, again: bool) -> bool:
    try:
        if await app.jobs.retry(job_id):
            click.echo(f"{job_id} retried")
            return True
        state = (await app.jobs.show(job_id)).job.state
    except JobNotFound as error:
        warn(str(error))
        return False
    if state is not JobState.COMPLETED:
        warn(f"{job_id} is {state}: only failed and cancelled jobs can be retried")
        return False
    if not again:
        warn(f"{job_id} is completed: add --again to run a copy of it under a new id")
        return False
    try:
        click.echo(f"{job_id} copied as {await app.jobs.copy(job_id)}")
    except OutcomeUnknown as error:
        (copy_id,) = error.job_ids
        message = (
            f"{error.__cause__}; the copy, job {copy_id}, may have been created\n"
            f"Check whether it exists before you copy again: {command('job', 'show', copy_id)}"
        )
        raise OutcomeUnknown(message, job_ids=error.job_ids) from error
    return True


async def _retry_selected(app: App, selection: _Selection, *, yes: bool) -> None:
    meant = _Ids()
    async for job_id in selection.ids(app):
        meant.add(job_id)
    count = len(meant)
    if count == 0:
        click.echo(f"No jobs are {selection}.", err=True)
        return
    require_consent(f"Retry {counted(count, 'job')} ({selection})?", yes=yes)
    retried = 0
    out = console(stderr=True)
    with Progress(console=out, disable=not out.is_terminal or count < _LONG, transient=True) as progress:
        bar = progress.add_task("retrying", total=count)
        for job_id in meant:  # not a new query: it would include jobs that the user has not confirmed
            retried += await _is_retried(app, job_id)
            progress.advance(bar)
    click.echo(f"{counted(retried, 'job')} retried")


class _Ids:
    """Job ids in sixteen bytes each: there may be a million."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, job_id: str) -> None:
        self._bytes += UUID(job_id).bytes

    def __len__(self) -> int:
        return len(self._bytes) // _ID_BYTES

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self._bytes), _ID_BYTES):
            yield str(UUID(bytes=bytes(self._bytes[start : start + _ID_BYTES])))


async def _is_retried(app: App, job_id: str) -> bool:
    """Retry a job of a list; return False if it was pruned or retried in the meantime."""
    try:
        return await app.jobs.retry(job_id)
    except JobNotFound:
        return False
