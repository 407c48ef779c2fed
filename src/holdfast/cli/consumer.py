"""`holdfast consumer`: list, pause, resume, reset, forget; and the events it has parked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.app.app import App
from holdfast.cli.consent import require_consent, yes_option
from holdfast.cli.document import json_option, show_json
from holdfast.cli.failures import Code, Failure, Noun, warn
from holdfast.cli.table import Cell, Column, show_table
from holdfast.cli.target import Target, store_options
from holdfast.cli.times import duration
from holdfast.model.instants import to_datetime
from holdfast.store.stream_values import ConsumerView, ParkedView, ShareView, Start, StartAt

_COLUMNS = (
    Column("consumer"),
    Column("reads"),
    Column("state", coloured=True),
    Column("partitions", right=True),
    Column("lag", right=True),
    Column("behind"),
    Column("parked", right=True),
    Column("nodes"),
)
_SHARE_COLUMNS = (
    Column("consumer"),
    Column("partition"),
    Column("state", coloured=True),
    Column("position", right=True),
    Column("head", right=True),
    Column("lag", right=True),
    Column("behind"),
    Column("parked", right=True),
    Column("generation", right=True),
    Column("owner"),
)
_PARKED_COLUMNS = (
    Column("event"),
    Column("partition"),
    Column("position", right=True),
    Column("stream"),
    Column("attempts", right=True),
    Column("parked"),
    Column("why"),
)


@click.group(cls=Noun)
def consumer() -> None:
    """Look at consumers of streams, pause, resume and reset them; and at what they have parked."""


@consumer.command("list")
@click.option("--partitions", is_flag=True, help="A line for each partition.")
@json_option
@store_options
def list_consumers(target: Target, *, partitions: bool, as_json: bool) -> None:
    """List consumers: how far they are, how far behind, and who runs them."""
    views = target.run(lambda app: app.consumers.list())
    if as_json:
        show_json({"consumers": [_fields(view) for view in views]})
        return
    if not views:
        click.echo("No consumers: they are known once a worker has run them.", err=True)
        return
    if partitions:
        show_table(_SHARE_COLUMNS, [_share_row(share) for view in views for share in view.shares])
    else:
        show_table(_COLUMNS, [_row(view) for view in views])


def _row(view: ConsumerView) -> tuple[Cell, ...]:
    owners = sorted({share.owner for share in view.shares if share.owner is not None})
    return (
        view.name,
        str(view.subscription),
        "paused" if view.paused else ("running" if owners else "waiting"),
        len(view.shares),
        view.lag,
        view.behind,
        view.parked or None,
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
        view.parked or None,
        view.generation,
        view.owner,
    )


def _fields(view: ConsumerView) -> dict[str, Any]:
    return {
        "name": view.name,
        "category": view.subscription.category,
        "stream": view.subscription.stream,
        "paused": view.paused,
        "lag": view.lag,
        "behind": view.behind,
        "parked": view.parked,
        "shares": [
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
                "behind": share.behind,
                "parked": share.parked,
                "since": share.since,
                "losses": share.losses,
            }
            for share in view.shares
        ],
    }


@consumer.command()
@click.argument("names", metavar="CONSUMER...", nargs=-1, required=True)
@store_options
def pause(target: Target, *, names: tuple[str, ...]) -> None:
    """Let nobody consume; what is being handled is ended first."""

    async def change(app: App) -> None:
        for name in names:
            changed = await app.consumers.pause(name)
            click.echo(f"{name} {'paused' if changed else 'was paused already'}")

    target.run(change)


@consumer.command()
@click.argument("names", metavar="CONSUMER...", nargs=-1, required=True)
@store_options
def resume(target: Target, *, names: tuple[str, ...]) -> None:
    """Let consumers go on."""

    async def change(app: App) -> None:
        for name in names:
            changed = await app.consumers.resume(name)
            click.echo(f"{name} {'resumed' if changed else 'was not paused'}")

    target.run(change)


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@click.option(
    "--to", metavar="PLACE", required=True, help="beginning, end, an ISO 8601 time with its zone, or a position."
)
@click.option("--within", type=duration, default="30s", show_default=True, help="How long to wait for its nodes.")
@yes_option
@store_options
def reset(target: Target, *, name: str, to: str, within: float, yes: bool) -> None:
    """Set the positions of a consumer, also while it runs.

    It is paused until its nodes have released what they hold, set, and resumed.

    \b
    holdfast consumer reset billing --to beginning
    holdfast consumer reset billing --to 2026-03-01T00:00:00Z
    """  # noqa: D301
    place = _place(to)

    async def change(app: App) -> None:
        view = await app.consumers.show(name)
        done = sum(share.position for share in view.shares)
        require_consent(
            f"Set {name} ({len(view.shares)} partitions, {done} events done, {view.lag} left) to {to}?", yes=yes
        )
        try:
            await app.consumers.reset(name, place, within=within)
        except TimeoutError as error:
            raise Failure(str(error), Code.WRONG) from error
        after = await app.consumers.show(name)
        click.echo(f"{name} reset to {to}: {after.lag} events left")

    target.run(change)


def _place(text: str) -> Start:
    if text in set(StartAt):
        return StartAt(text)
    if text.isdigit():
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        message = f"--to {text}: give beginning, end, a position, or a time like 2026-03-01T00:00:00Z"
        raise click.UsageError(message) from None
    if instant.tzinfo is None:
        raise click.UsageError(f"--to {text} has no time zone: add Z for UTC, or an offset like +02:00")
    return instant


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@yes_option
@store_options
def forget(target: Target, *, name: str, yes: bool) -> None:
    """Delete a paused consumer with its positions and what it has parked."""

    async def change(app: App) -> bool:
        view = await app.consumers.show(name)
        require_consent(f"Forget {name}, its {len(view.shares)} positions and {view.parked} parked events?", yes=yes)
        return await app.consumers.forget(name)

    if not target.run(change):
        raise Failure(
            f"{name} is still held by a node: pause it, and wait until its nodes have released it", Code.WRONG
        )
    click.echo(f"{name} forgotten")


# --- parked events ----------------------------------------------------------------------------------------------------


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="At most so many."
)
@json_option
@store_options
def parked(target: Target, *, name: str, limit: int, as_json: bool) -> None:
    """List the events that a consumer has set aside, in order."""
    views = target.run(lambda app: app.consumers.parked(name, limit=limit))
    if as_json:
        show_json({"parked": [_parked_fields(view) for view in views]})
        return
    if not views:
        click.echo(f"{name} has parked nothing.", err=True)
        return
    show_table(_PARKED_COLUMNS, [_parked_row(view) for view in views])
    if len(views) == limit:
        click.echo("There may be more: add --limit, up to 1000.", err=True)


def _why(view: ParkedView) -> str:
    if view.failure is None:
        return "waits behind another of its stream"
    return f"{view.failure.error_class}: {view.failure.message}"


def _parked_row(view: ParkedView) -> tuple[Cell, ...]:
    place = f"{view.share.category}:{view.share.partition_id}"
    why = f"{'to be retried; ' if view.is_retrying else ''}{_why(view)}"
    return (view.event_id, place, view.position, view.stream, view.attempts, to_datetime(view.parked_us), why)


def _parked_fields(view: ParkedView) -> dict[str, Any]:
    return {
        "event_id": view.event_id,
        "category": view.share.category,
        "partition_id": view.share.partition_id,
        "position": view.position,
        "stream": view.stream,
        "attempts": view.attempts,
        "is_retrying": view.is_retrying,
        "parked_at": to_datetime(view.parked_us),
        "error_class": None if view.failure is None else view.failure.error_class,
        "message": None if view.failure is None else view.failure.message,
        "traceback": None if view.failure is None else view.failure.traceback,
    }


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@click.option("--stream", metavar="STREAM", help="Only those of this stream.  [default: all]")
@store_options
def retry(target: Target, *, name: str, stream: str | None) -> None:
    """Have parked events handled again, in order; later ones of their streams follow."""
    count = target.run(lambda app: app.consumers.retry_parked(name, stream))
    click.echo(f"{count} events of {name} will be handled again")


@consumer.command()
@click.argument("name", metavar="CONSUMER")
@click.option("--stream", metavar="STREAM", help="Only those of this stream.  [default: all]")
@click.option("--event", "event_id", metavar="ID", help="Only this event.")
@yes_option
@store_options
def drop(target: Target, *, name: str, stream: str | None, event_id: str | None, yes: bool) -> None:
    """Delete parked events: they will never be handled. Later ones of their streams flow again."""

    async def change(app: App) -> int:
        what = (
            f"event {event_id}" if event_id else (f"the parked events of stream {stream}" if stream else "all parked")
        )
        require_consent(f"Drop {what} of {name}?", yes=yes)
        return await app.consumers.drop_parked(name, stream=stream, event_id=event_id)

    count = target.run(change)
    if not count:
        warn("nothing of that kind is parked")
        click.get_current_context().exit(Code.WRONG)
    click.echo(f"{count} parked events of {name} dropped")
