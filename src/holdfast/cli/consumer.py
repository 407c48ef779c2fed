"""`holdfast consumer`: list, pause, resume, reset and forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirm import require_consent, yes_to_all
from holdfast.cli.consumer_parked import drop, parked, retry
from holdfast.cli.exit_errors import ExitError, Noun
from holdfast.cli.json_output import json_option, seconds, show_json
from holdfast.cli.pausing import pause_each, resume_each
from holdfast.cli.suggested_commands import command
from holdfast.cli.table import Cell, Column, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration, instant
from holdfast.model.counted import counted
from holdfast.reports.states import consumer_state, live_ids, owners_of
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.stream_values import ConsumerView, NodeView, ShareView, Start, StartAt

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("consumer", shrinks=True),
    Column("reads", shrinks=True),
    Column("state", coloured=True),
    Column("lag", right=True),
    Column("behind"),
    Column("parked", right=True, hides_zero=True),
    Column("partitions", right=True, optional=True),
    Column("nodes", shrinks=True),
)
_SHARE_COLUMNS = (
    Column("consumer", shrinks=True),
    Column("partition", shrinks=True, keeps_end=True),
    Column("state", coloured=True),
    Column("position", right=True),
    Column("head", right=True, optional=True),
    Column("lag", right=True),
    Column("behind"),
    Column("parked", right=True, hides_zero=True),
    Column("owner", shrinks=True, keeps_end=True),
    Column("generation", right=True, optional=True),
)


@click.group(cls=Noun)
def consumer() -> None:
    """List, pause, resume and reset consumers, and manage their parked events."""


@consumer.command("list")
@click.option("--partitions", is_flag=True, help="One line per partition.")
@json_option
@store_options
def list_consumers(target: StoreTarget, *, partitions: bool, as_json: bool) -> None:
    """List consumers with their lag and their nodes."""

    async def look(app: App) -> tuple[Sequence[ConsumerView], Sequence[NodeView]]:
        return await app.consumers.list(), await app.nodes()

    views, nodes = target.run(look)
    if as_json:
        show_json({"consumers": [_fields(view, nodes) for view in views]})
        return
    if not views:
        click.echo("No consumers. They are registered when a worker first runs them.", err=True)
        return
    if partitions:
        show_table(_SHARE_COLUMNS, [_share_row(share) for view in views for share in view.shares])
    else:
        show_table(_COLUMNS, [_row(view, nodes) for view in views])


def _row(view: ConsumerView, nodes: Sequence[NodeView]) -> tuple[Cell, ...]:
    live = live_ids(nodes)
    owners = [owner if owner in live else f"{owner} (silent)" for owner in owners_of(view)]
    return (
        view.name,
        str(view.subscription),
        consumer_state(view, live),
        view.lag,
        view.behind,
        view.parked,
        len(view.shares),
        ", ".join(owners),
    )


def _share_row(view: ShareView) -> tuple[Cell, ...]:
    return (
        view.share.consumer,
        f"{view.share.category}:{view.share.partition_id}",
        str(view.state),
        view.position,
        view.head,
        view.lag,
        view.behind,
        view.parked,
        view.owner,
        view.generation,
    )


def _fields(view: ConsumerView, nodes: Sequence[NodeView]) -> dict[str, Any]:
    live = live_ids(nodes)
    return {
        "name": view.name,
        "category": view.subscription.category,
        "stream": view.subscription.stream,
        "state": consumer_state(view, live),
        "lag": view.lag,
        "behind_seconds": seconds(view.behind),
        "parked": view.parked,
        "nodes": [{"node_id": owner, "is_silent": owner not in live} for owner in owners_of(view)],
        "partitions": [
            {
                "category": share.share.category,
                "partition_id": share.share.partition_id,
                "state": str(share.state),
                "generation": str(share.generation),
                "owner": share.owner,
                "target": share.target,
                "position": share.position,
                "head": share.head,
                "lag": share.lag,
                "behind_seconds": seconds(share.behind),
                "parked": share.parked,
                "since_seconds": seconds(share.since),
                "losses": share.losses,
            }
            for share in view.shares
        ],
    }


@consumer.command()
@click.argument("names", metavar="CONSUMER...", nargs=-1, required=True)
@store_options
def pause(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Stop consumers after the events that they are handling."""
    target.run(lambda app: pause_each(names, app.consumers.pause))


@consumer.command()
@click.argument("names", metavar="CONSUMER...", nargs=-1, required=True)
@store_options
def resume(target: StoreTarget, *, names: tuple[str, ...]) -> None:
    """Resume paused consumers."""
    target.run(lambda app: resume_each(names, app.consumers.resume))


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@click.option(
    "--to", metavar="PLACE", required=True, help="beginning, end, an ISO 8601 time with its zone, or a position."
)
@click.option("--within", type=duration, default="30s", show_default=True, help="Timeout for its nodes to release.")
@yes_to_all
@store_options
def reset(target: StoreTarget, *, name: str, to: str, within: float, yes: bool) -> None:
    """Set the positions of a consumer, even while it runs.

    The consumer is paused, its nodes release its partitions, the positions are set, and it is resumed.

    \b
    holdfast consumer reset billing --to beginning
    holdfast consumer reset billing --to 2026-03-01T00:00:00Z
    """  # noqa: D301
    place = _place(to)

    async def change(app: App) -> None:
        view = await app.consumers.show(name)
        done = sum(share.position for share in view.shares)
        partitions = counted(len(view.shares), "partition")
        question = f"Set {name} ({partitions}, {counted(done, 'event')} done, {view.lag:,} left) to {to}?"
        require_consent(question, yes=yes)
        try:
            await app.consumers.reset(name, place, within=within)
        except TimeoutError as error:
            raise ExitError(str(error), ExitCode.WRONG) from error
        after = await app.consumers.show(name)
        click.echo(f"{name} reset to {to}: {counted(after.lag, 'event')} left")

    target.run(change)


def _place(text: str) -> Start:
    if text in set(StartAt):
        return StartAt(text)
    if text.isdigit():
        return int(text)
    try:
        return instant(text)
    except click.BadParameter as error:
        message = f"{error.message}; or give beginning, end, or a position"
        raise click.BadParameter(message, param_hint="--to") from None


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@yes_to_all
@store_options
def forget(target: StoreTarget, *, name: str, yes: bool) -> None:
    """Delete a paused consumer with its positions and its parked events."""

    async def change(app: App) -> bool:
        view = await app.consumers.show(name)
        if not view.paused:
            remedy = f"Pause it first: {command('consumer', 'pause', name)}"
            raise ExitError(f"{name} is not paused, so it was not deleted\n{remedy}", ExitCode.WRONG)
        lost = f"{counted(len(view.shares), 'position')} and {counted(view.parked, 'parked event')}"
        require_consent(f"Delete {name} with its {lost}?", yes=yes)
        return await app.consumers.forget(name)

    if not target.run(change):
        message = (
            f"{name} still runs on a node, so it was not deleted\n"
            "Wait until `holdfast consumer list` shows no nodes for it, then repeat the command."
        )
        raise ExitError(message, ExitCode.WRONG)
    click.echo(f"{name} forgotten")


for _command in (parked, retry, drop):
    consumer.add_command(_command)
