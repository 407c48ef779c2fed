"""`holdfast task`: list, pause, resume and limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.exit_errors import Noun
from holdfast.cli.json_output import json_option, queue_fields, show_json
from holdfast.cli.limits import given_limit, limit_options
from holdfast.cli.pausing import pause_known, resume_each
from holdfast.cli.table import Cell, Column, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.names import check_name
from holdfast.reports.states import queue_state
from holdfast.runtime.unknown_queue import unknown_task
from holdfast.store.values import TaskView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("task", shrinks=True),
    Column("state", coloured=True),
    Column("ready", right=True),
    Column("scheduled", right=True, hides_zero=True),
    Column("blocked", right=True, hides_zero=True),
    Column("running", right=True),
    Column("failed", right=True),
    Column("oldest", optional=True),
    Column("limit", optional=True),
    Column("per key", optional=True),
)


@click.group(cls=Noun)
def task() -> None:
    """List, pause, resume and limit tasks."""


@task.command("list")
@json_option
@store_options
def list_tasks(target: StoreTarget, *, as_json: bool) -> None:
    """List all tasks: their jobs by state over all queues, and the age of the oldest ready job."""

    async def look(app: App) -> list[TaskView]:
        return list(await app.tasks.list())

    found = target.run(look)
    if as_json:
        show_json({"tasks": [queue_fields(view) for view in found]})
    elif not found:
        click.echo("No tasks. A task is listed from its first job on.", err=True)
    else:
        show_table(_COLUMNS, [_row(view) for view in found])


def _row(view: TaskView) -> tuple[Cell, ...]:
    counts = (view.ready, view.scheduled, view.blocked, view.running, view.failed)
    limits = (None if limit is None else str(limit) for limit in (view.limit, view.key_limit))
    return (view.name, queue_state(view), *counts, view.oldest_ready, *limits)


@task.command()
@click.argument("names", metavar="TASK...", nargs=-1, required=True)
@store_options
def pause(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Stop claims of the jobs of tasks, in every queue. Running jobs continue."""

    async def change(app: App) -> None:
        known = {view.name for view in await app.tasks.list(most=1)}.union(app.tasks.names)
        pause_one = app.backend.queues.pause_task  # `app.tasks` would warn by a log
        await pause_known(names, lambda name: pause_one(check_name("task", name)), known=known, unknown=unknown_task)

    target.run(change)


@task.command()
@click.argument("names", metavar="TASK...", nargs=-1, required=True)
@store_options
def resume(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Allow claims of the jobs of tasks again."""
    target.run(lambda app: resume_each(names, app.tasks.resume))


@task.command("limit")
@click.argument("name", metavar="TASK")
@click.option("--per-key", is_flag=True, help="Limit the jobs of each limit key instead of the task.")
@limit_options
@store_options
def set_limit(target: StoreTarget, *, name: str, per_key: bool, **options: Any) -> None:
    """Limit how many jobs of a task run at once, and at what rate they start, over all workers."""
    limit = given_limit(**options)

    async def change(app: App) -> None:
        await app.tasks.limit(name, limit, per_key=per_key)
        each = " per key" if per_key else ""
        click.echo(f"{name} has no limit{each}" if limit is None else f"{name} is limited{each}: {limit}")

    target.run(change)
