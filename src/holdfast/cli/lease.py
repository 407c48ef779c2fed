"""`holdfast lease`: list and reset."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.confirm import require_consent, yes_to_several
from holdfast.cli.exit_errors import Noun, warn
from holdfast.cli.ids import whole_ids
from holdfast.cli.json_output import fields_of, json_option, show_json
from holdfast.cli.table import Cell, Column, Id, console, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.errors import JobNotFound
from holdfast.model.ids import short_id
from holdfast.model.job import JobState
from holdfast.reports.job_text import progress_of
from holdfast.reports.text import line
from holdfast.reports.times import span
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.values import LeaseView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("job"),
    Column("queue", shrinks=True),
    Column("task", shrinks=True),
    Column("worker", shrinks=True, keeps_end=True),
    Column("attempt", right=True, optional=True),
    Column("since"),
    Column("ends", coloured=True),
    Column("progress", shrinks=True),
)
_BATCH = 1000


@click.group(cls=Noun)
def lease() -> None:
    """List leases, and reset them."""


@lease.command("list")
@click.option("--expired", is_flag=True, help="Only leases that have expired and are not yet rescued.")
@click.option(
    "--limit", type=click.IntRange(1, _BATCH), metavar="N", default=100, show_default=True, help="At most N leases."
)
@json_option
@store_options
def list_leases(target: StoreTarget, *, expired: bool, limit: int, as_json: bool) -> None:
    """List active leases, the next to expire first."""
    views = target.run(lambda app: app.leases(limit, expired_only=expired))
    if as_json:
        show_json({"leases": [fields_of(view) for view in views]})
        return
    if not views:
        click.echo("No expired leases." if expired else "No leases: no job is running.", err=True)
        return
    show_table(_COLUMNS, [_row(view) for view in views])
    if len(views) == limit:
        click.echo(f"There may be more: raise --limit, up to {_BATCH}.", err=True)


def _row(view: LeaseView) -> tuple[Cell, ...]:
    ends: Cell = view.expires_in
    if console().is_terminal:
        is_over = view.expires_in <= timedelta(0)
        ends = f"expired {span(-view.expires_in)} ago" if is_over else f"in {span(view.expires_in)}"
    return (
        Id(short_id(view.seq, view.job_id), view.job_id),
        view.queue,
        view.task,
        view.worker_id,
        view.attempt,
        view.started_at,
        ends,
        progress_of(view),
    )


@lease.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--expired", is_flag=True, help="Reset all expired leases instead of ids.")
@yes_to_several
@store_options
def reset(target: StoreTarget, *, ids: tuple[str, ...], expired: bool, yes: bool) -> None:
    """Reset leases, so that the jobs run again; a job with a pending cancel request is cancelled instead.

    With job ids, the attempt is excused, and its worker, if still alive, can no longer write. With --expired, every
    job is treated as lost by its worker, as a running worker would do shortly anyway.

    \b
    holdfast lease reset 01a1de74-f8d6
    holdfast lease reset --expired --yes
    """  # noqa: D301
    if bool(ids) == expired:
        raise click.UsageError("give the ids of running jobs, or --expired for all expired leases")

    async def change(app: App) -> bool:
        return await _rescue(app, yes=yes) if expired else await _reset(app, ids, yes=yes)

    if not target.run(change):
        click.get_current_context().exit(ExitCode.WRONG)


async def _reset(app: App, ids: tuple[str, ...], *, yes: bool) -> bool:
    meant = await whole_ids(app, ids)
    if len(meant) > 1:
        require_consent(f"Reset {len(meant)} leases?", yes=yes)
    all_done = True
    for job_id in meant:
        try:
            is_reset = await app.jobs.reset(job_id)
        except JobNotFound as error:
            warn(str(error))
            all_done = False
            continue
        if is_reset:
            click.echo(f"{job_id} reset{await _end_of(app, job_id)}")
        else:
            warn(f"{job_id} is not running, so it has no lease")
            all_done = False
    return all_done


async def _end_of(app: App, job_id: str) -> str:
    """Return a note if the job was cancelled by the reset, because of an earlier cancel request; else nothing."""
    try:
        job = (await app.jobs.show(job_id)).job
    except JobNotFound:  # pruned meanwhile
        return ""
    if job.state is not JobState.CANCELLED:
        return ""
    return f"; it will not run again: it was cancelled by an earlier request ({line(job.reason or '')})"


async def _rescue(app: App, *, yes: bool) -> bool:
    found = len(await app.leases(_BATCH, expired_only=True))
    if not found:
        click.echo("No expired leases.", err=True)
        return True
    if found > 1:
        count = f"{found}" if found < _BATCH else f"{_BATCH} or more"
        require_consent(f"Reset {count} expired leases?", yes=yes)
    while True:
        rescued = await app.rescue(_BATCH)
        for job in rescued:
            click.echo(f"{job.job_id} {job.state}")
        if len(rescued) < _BATCH:
            return True
