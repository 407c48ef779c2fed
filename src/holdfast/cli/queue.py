"""`holdfast queue`: list, pause, resume and limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console, RenderableType

from holdfast.cli.exit_errors import Noun
from holdfast.cli.json_output import json_option, queue_fields, show_json
from holdfast.cli.limits import given_limit, limit_options
from holdfast.cli.live import check_watch, show_live, watch_option
from holdfast.cli.pausing import pause_known, resume_each
from holdfast.cli.table import Cell, Column, rendered, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.names import check_name
from holdfast.reports.rates import EVER, WINDOW, QueueRate, completed_of, rates_of, sums_of
from holdfast.reports.states import queue_state
from holdfast.reports.times import now
from holdfast.runtime.unknown_queue import unknown_queue
from holdfast.store.values import QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("queue", shrinks=True),
    Column("state", coloured=True),
    Column("ready", right=True),
    Column("scheduled", right=True, hides_zero=True),
    Column("blocked", right=True, hides_zero=True),
    Column("running", right=True),
    Column("failed", right=True),
    Column("completed", right=True),
    Column("/5 min", right=True, optional=True),
    Column("oldest", optional=True),
    Column("limit", optional=True),
)


class _Progress(msgspec.Struct, frozen=True):
    """A queue with the number of its completed jobs, what happened lately, and the mean rate of that."""

    view: QueueView
    completed: int
    recent: QueueRate
    rate: QueueRate


@click.group(cls=Noun)
def queue() -> None:
    """List, pause, resume and limit queues."""


@queue.command("list")
@watch_option
@json_option
@store_options
def list_queues(target: StoreTarget, *, watch: float | None, as_json: bool) -> None:
    """List all queues: their jobs by state, and the age of the oldest ready job.

    `completed` counts the last 30 days, and `/5 min` the last 5 minutes.
    """
    check_watch(watch, as_json=as_json)
    if watch is not None:
        show_live(target, _frame, watch)
        return
    found = target.run(_look)
    if as_json:
        show_json({"queues": [_fields(progress) for progress in found]})
    elif not found:
        click.echo("No queues. The first job creates one.", err=True)
    else:
        show_table(_COLUMNS, [_row(progress) for progress in found])


async def _look(app: App) -> Sequence[_Progress]:
    views = await app.queues.list()
    completed = completed_of(await app.jobs.counts(EVER, by_minute=False))
    counts = await app.jobs.counts(WINDOW)
    recent, rates, none = sums_of(counts), rates_of(counts, now()), QueueRate()
    return [
        _Progress(view, completed.get(view.name, 0), recent.get(view.name, none), rates.get(view.name, none))
        for view in views
    ]


async def _frame(app: App, out: Console) -> RenderableType:
    return rendered(_COLUMNS, [_row(progress) for progress in await _look(app)], out.width)


def _fields(progress: _Progress) -> dict[str, object]:
    fields = queue_fields(progress.view)
    del fields["at_least"]  # all are counted
    return {**fields, "completed": progress.completed, **progress.rate.fields()}


def _row(progress: _Progress) -> tuple[Cell, ...]:
    view = progress.view
    return (
        view.name,
        queue_state(view),
        view.ready,
        view.scheduled,
        view.blocked,
        view.running,
        view.failed,
        progress.completed,
        round(progress.recent.completed) or None,
        view.oldest_ready,
        None if view.limit is None else str(view.limit),
    )


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@store_options
def pause(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Stop claims from queues. Running jobs continue."""

    async def change(app: App) -> None:
        known = {view.name for view in await app.queues.list(most=1)}.union(task.queue for task in app.tasks)
        pause_one = app.backend.queues.pause  # `app.queues` would warn by a log
        await pause_known(names, lambda name: pause_one(check_name("queue", name)), known=known, unknown=unknown_queue)

    target.run(change)


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@store_options
def resume(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Allow claims from queues again."""
    target.run(lambda app: resume_each(names, app.queues.resume))


@queue.command("limit")
@click.argument("name", metavar="QUEUE")
@limit_options
@store_options
def set_limit(target: StoreTarget, *, name: str, **options: Any) -> None:
    """Limit how many jobs of a queue run at once, and at what rate they start, over all workers."""
    limit = given_limit(**options)

    async def change(app: App) -> None:
        await app.queues.limit(name, limit)
        click.echo(f"{name} has no limit" if limit is None else f"{name} is limited: {limit}")

    target.run(change)
