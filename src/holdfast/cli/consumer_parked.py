"""`holdfast consumer parked`, `retry` and `drop`: the parked events of a consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirm import require_consent, yes_to_all
from holdfast.cli.exit_errors import ExitError
from holdfast.cli.ids import beginning, only
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.suggested_commands import command
from holdfast.cli.table import Cell, Column, Id, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.counted import counted
from holdfast.runtime.exit_code import ExitCode
from holdfast.store.stream_values import ParkedView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("event"),
    Column("partition", shrinks=True, keeps_end=True),
    Column("position", right=True, optional=True),
    Column("stream", shrinks=True),
    Column("attempts", right=True, optional=True),
    Column("parked"),
    Column("why", shrinks=True),
)
_PAGE = 1000
_TAIL = 8  # the end of an id is random: these digits distinguish the events of one consumer


@click.command()
@click.argument("name", metavar="CONSUMER")
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="At most N events."
)
@json_option
@store_options
def parked(target: StoreTarget, *, name: str, limit: int, as_json: bool) -> None:
    """List the parked events of a consumer, in order."""
    views = target.run(lambda app: app.consumers.parked(name, limit=limit))
    if as_json:
        show_json({"parked": [_fields(view) for view in views]})
        return
    if not views:
        click.echo(f"{name} has no parked events.", err=True)
        return
    show_table(_COLUMNS, [_row(view) for view in views])
    if len(views) == limit:
        click.echo("There may be more: raise --limit, up to 1000.", err=True)


def _why(view: ParkedView) -> str:
    if view.failure is None:
        return "waits behind another event of its stream"
    return f"{view.failure.error_class}: {view.failure.message}"


def _row(view: ParkedView) -> tuple[Cell, ...]:
    place = f"{view.share.category}:{view.share.partition_id}"
    why = f"{'to be retried; ' if view.is_retrying else ''}{_why(view)}"
    event = Id(view.event_id[-_TAIL:], view.event_id)
    return (event, place, view.position, view.stream, view.attempts, view.parked_at, why)


def _fields(view: ParkedView) -> dict[str, Any]:
    return {
        "event_id": view.event_id,
        "category": view.share.category,
        "partition_id": view.share.partition_id,
        "position": view.position,
        "stream": view.stream,
        "attempts": view.attempts,
        "is_retrying": view.is_retrying,
        "parked_at": view.parked_at,
        "error_class": None if view.failure is None else view.failure.error_class,
        "message": None if view.failure is None else view.failure.message,
        "traceback": None if view.failure is None else view.failure.traceback,
    }


async def _each(app: App, name: str, stream: str | None) -> AsyncIterator[ParkedView]:
    """Yield the parked events of one stream or of all, with one page in memory at a time."""
    last: ParkedView | None = None
    while page := await app.consumers.parked(name, after=last, limit=_PAGE):
        for view in page:
            if stream in {None, view.stream}:
                yield view
        last = page[-1]


def _nothing(name: str, stream: str | None) -> ExitError:
    if stream is None:
        return ExitError(f"{name} has no parked events", ExitCode.WRONG)
    remedy = f"List its parked events: {command('consumer', 'parked', name)}"
    return ExitError(f"{name} has no parked events of the stream {stream}\n{remedy}", ExitCode.WRONG)


@click.command()
@click.argument("name", metavar="CONSUMER")
@click.option("--stream", metavar="STREAM", help="Only events of this stream.  [default: all]")
@store_options
def retry(target: StoreTarget, *, name: str, stream: str | None) -> None:
    """Handle parked events again, in order; later events of their streams follow."""
    count = target.run(lambda app: app.consumers.retry_parked(name, stream))
    if not count:
        raise _nothing(name, stream)
    click.echo(f"{counted(count, 'event')} of {name} will be handled again")


@click.command()
@click.argument("name", metavar="CONSUMER")
@click.option("--stream", metavar="STREAM", help="Only events of this stream.  [default: all]")
@click.option("--event", "given", metavar="ID", help="Only this event; ID may be the beginning or the end of an id.")
@yes_to_all
@store_options
def drop(target: StoreTarget, *, name: str, stream: str | None, given: str | None, yes: bool) -> None:
    """Delete parked events: they will never be handled. Later events of their streams are handled again.

    \b
    holdfast consumer drop billing --stream order-7
    holdfast consumer drop billing --event 01a1de74-f8d6
    """  # noqa: D301 - \b keeps click from joining lines

    async def change(app: App) -> int:
        if given is None:
            require_consent(await _question(app, name, stream), yes=yes)
            return await app.consumers.drop_parked(name, stream=stream)
        event = await _meant(app, name, stream=stream, given=given)
        require_consent(f"Drop the parked event {event.event_id} of {name} in the stream {event.stream}?", yes=yes)
        return await app.consumers.drop_parked(name, stream=stream, event_id=event.event_id)

    count = target.run(change)
    if not count:  # a successful retry or another command came first
        raise ExitError(f"nothing was dropped: the events of {name} are no longer parked", ExitCode.WRONG)
    click.echo(f"{counted(count, 'parked event')} of {name} dropped")


async def _question(app: App, name: str, stream: str | None) -> str:
    count = 0
    async for _ in _each(app, name, stream):
        count += 1
    if not count:
        raise _nothing(name, stream)
    what = counted(count, "parked event")
    where = "" if stream is None else f" in the stream {stream}"
    return f"Drop {'the' if count == 1 else 'all'} {what} of {name}{where}?"


async def _meant(app: App, name: str, *, stream: str | None, given: str) -> ParkedView:
    text = beginning(given, "event")
    found = {
        view.event_id: view
        async for view in _each(app, name, stream)
        if view.event_id.startswith(text) or view.event_id.endswith(text)
    }
    if not found:
        of_stream = "" if stream is None else f" of the stream {stream}"
        message = (
            f"{name} has no parked event{of_stream} whose id starts or ends with {text}\n"
            f"List its parked events: {command('consumer', 'parked', name)}"
        )
        raise ExitError(message, ExitCode.WRONG)
    return found[only(text, list(found), "event")]
