"""`holdfast job retry`: run failed and cancelled jobs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.app.bulk import JobSelection
from holdfast.cli.confirm import require_consent, yes_to_several
from holdfast.cli.exit_errors import warn
from holdfast.cli.ids import whole_ids
from holdfast.cli.job_bulk import confirmed, in_batches, select
from holdfast.cli.suggested_commands import command
from holdfast.cli.target import StoreTarget, store_options
from holdfast.errors import JobNotFound, OutcomeUnknown
from holdfast.model.counted import counted
from holdfast.model.job import JobState
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App


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
            await _retry_selected(app, JobSelection(JobState(state), queue, task), yes=yes)
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


async def _retry_selected(app: App, selection: JobSelection, *, yes: bool) -> None:
    selected = await select(app, [selection])
    if not confirmed(selected, "Retry", yes=yes):
        return

    async def retry_batch(_: JobSelection, ids: list[str]) -> int:
        return sum([await _is_retried(app, job_id) for job_id in ids])

    retried = 0
    try:
        async for part in in_batches(selected, retry_batch, "retrying"):
            retried += part
    finally:  # a repeat does the rest
        click.echo(f"{counted(retried, 'job')} retried")


async def _is_retried(app: App, job_id: str) -> bool:
    """Retry a job of a list; return False if it was pruned or retried in the meantime."""
    try:
        return await app.jobs.retry(job_id)
    except JobNotFound:
        return False
