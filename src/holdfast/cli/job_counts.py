"""`holdfast job counts`: how many jobs are in each state, and what happened to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.json_output import fields_of, json_option, seconds, show_json
from holdfast.cli.table import Cell, Column, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration
from holdfast.reports.rates import EVER
from holdfast.reports.times import span
from holdfast.store.values import Count, QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("queue", shrinks=True),
    Column("task", shrinks=True),
    Column("enqueued", right=True),
    Column("completed", right=True),
    Column("failed", right=True),
    Column("cancelled", right=True, hides_zero=True),
    Column("retried", right=True, hides_zero=True),
    Column("rescued", right=True, hides_zero=True),
    Column("mean run", right=True, optional=True),
)
_OPEN = ("ready", "scheduled", "blocked", "running", "failed")


@click.command()
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--since", type=duration, metavar="DURATION", help="Only the last 5m, 1h, 7d, …  [default: all kept]")
@json_option
@store_options
def counts(target: StoreTarget, *, queue: str | None, task: str | None, since: float | None, as_json: bool) -> None:
    """Count jobs: what happened to them by queue and task, and how many are in each state now.

    `retried` and `rescued` count attempts, the others count jobs. The counters are kept for 30 days.

    \b
    holdfast job counts
    holdfast job counts --since 1h --task charge
    """  # noqa: D301 - \b keeps click from joining lines

    async def look(app: App) -> tuple[Sequence[QueueView], Sequence[Count]]:
        within = EVER if since is None else timedelta(seconds=since)
        return await app.queues.list(), await app.jobs.counts(within, by_minute=False)

    queues, sums = target.run(look)
    queues = [view for view in queues if queue in {None, view.name}]
    found = [count for count in sums if queue in {None, count.queue} and task in {None, count.task}]
    states = {state: sum(getattr(view, state) for view in queues) for state in _OPEN}
    if as_json:
        fields = [_fields(count) for count in found]
        show_json({"since_seconds": since, "states": states, "counts": fields})
        return
    if found:
        show_table(_COLUMNS, [_row(count) for count in found])
    else:
        click.echo("No jobs.", err=True)
    if task is None:  # the states are counted by queue
        now = ", ".join(f"{number:,} {state}" for state, number in states.items())
        click.echo(f"Now: {now}.", err=True)


def _mean(count: Count) -> timedelta | None:
    attempts = count.completed + count.retried + count.failed + count.rescued
    return count.run_time / attempts if attempts else None


def _row(count: Count) -> tuple[Cell, ...]:
    mean = _mean(count)
    return (
        count.queue,
        count.task,
        count.enqueued,
        count.completed,
        count.failed,
        count.cancelled,
        count.retried,
        count.rescued,
        None if mean is None else _precise(mean),
    )


def _precise(time: timedelta) -> str:
    """Return a short duration in milliseconds: most attempts take less than a second."""
    return f"{time / timedelta(milliseconds=1):.1f} ms" if time < timedelta(seconds=1) else span(time)


def _fields(count: Count) -> dict[str, object]:
    fields = fields_of(count)
    return {**fields, "first_minute_at": fields.pop("minute_at"), "mean_run_seconds": seconds(_mean(count))}
