"""`holdfast queue`: list, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.exit_errors import Noun, warn
from holdfast.cli.json_output import json_option, queue_fields, show_json
from holdfast.cli.table import Column, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.names import check_name
from holdfast.runtime.unknown_queue import unknown_queue

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("queue"),
    Column("claims", coloured=True),
    Column("ready", right=True),
    Column("scheduled", right=True),
    Column("blocked", right=True),
    Column("running", right=True),
    Column("failed", right=True),
    Column("oldest ready"),
)


@click.group(cls=Noun)
def queue() -> None:
    """List, pause and resume queues."""


@queue.command("list")
@json_option
@store_options
def list_queues(target: StoreTarget, *, as_json: bool) -> None:
    """List all queues with the number of their jobs by state."""
    views = target.run(lambda app: app.queues.list())
    if as_json:
        show_json({"queues": [queue_fields(view) for view in views]})
        return
    if not views:
        click.echo("No queues. The first job creates one.", err=True)
        return
    show_table(
        _COLUMNS,
        [
            (
                view.name,
                "paused" if view.paused else "open",
                view.ready,
                view.scheduled,
                view.blocked,
                view.running,
                view.failed,
                view.oldest_ready,
            )
            for view in views
        ],
    )


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@store_options
def pause(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Stop claims from queues. Running jobs continue."""

    async def change(app: App) -> None:
        known = {view.name for view in await app.queues.list()}.union(task.queue for task in app.tasks)
        for name in names:
            changed = await app.backend.queues.pause(check_name("queue", name))  # `app.queues` would warn by a log
            click.echo(f"{name} {'paused' if changed else 'was already paused'}")
            if name not in known:
                warn(unknown_queue(name, known))

    target.run(change)


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@store_options
def resume(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Allow claims from queues again."""

    async def change(app: App) -> None:
        for name in names:
            changed = await app.queues.resume(name)
            click.echo(f"{name} {'resumed' if changed else 'was not paused'}")

    target.run(change)
