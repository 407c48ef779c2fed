"""`holdfast event`: append and read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.exit_errors import Noun
from holdfast.cli.job_enqueue import pair
from holdfast.cli.json_output import json_option, json_text, show_json
from holdfast.cli.suggested_commands import command
from holdfast.cli.table import Cell, Column, console, displayed, piped, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import instant
from holdfast.store.stream_values import StartAt

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.model.event import Appended
    from holdfast.streams.event import Event
    from holdfast.streams.reading import After, EventPage

_COLUMNS = (
    Column("recorded"),
    Column("place"),
    Column("stream"),
    Column("version", right=True),
    Column("name"),
    Column("payload"),
)
_PAGE = 100
_MOST = 10_000
_AFTER_ALL = datetime(9999, 1, 1, tzinfo=UTC)
_POLL = 1.0  # seconds: a notification may be lost


@click.group(cls=Noun)
def event() -> None:
    """Append and read events."""


@event.command()
@click.argument("category")
@click.option("--stream", required=True, help="The stream: the entity that the event belongs to.")
@click.option("--name", required=True, help="What happened.")
@click.option("--payload", metavar="JSON", default="null", help="The payload.  [default: null]")
@click.option(
    "--expected-version",
    type=click.IntRange(0),
    metavar="N",
    help="The version that the stream must have; 0: it has no event yet.",
)
@click.option("--header", "headers", metavar="NAME=TEXT", multiple=True, help="A header; may be repeated.")
@click.option("--id", "event_id", metavar="UUID", help="The event's id: a repeat with it appends no second event.")
@json_option
@store_options
def append(
    target: StoreTarget,
    *,
    category: str,
    payload: str,
    headers: tuple[str, ...],
    as_json: bool,
    **event: Any,
) -> None:
    """Append an event to a stream. The first append to a category creates it, with 8 partitions.

    \b
    holdfast event append companies --stream company-7 --name renamed --payload '{"to": "Acme"}'
    """  # noqa: D301 - \b keeps click from joining lines
    value = _json("--payload", payload)
    pairs = dict(pair(text, "--header", "NAME=TEXT") for text in headers)

    async def put(app: App) -> Appended:
        return await app.append(category, payload=value, headers=pairs or None, **event)

    appended = target.run(put)
    if as_json:
        show_json(msgspec.structs.asdict(appended))
    else:
        place = f"{category}:{appended.partition_id}, position {appended.position}"
        done = "appended" if appended.is_new else "was appended before"
        click.echo(f"{appended.id} {done}: version {appended.version} of {event['stream']} ({place})")


def _json(option: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        message = f"{option} {text!r} is not JSON; a string needs quotes inside quotes: {option} '\"…\"'"
        raise click.UsageError(message) from None


class _Reader:
    """Reads the events of a category, or of one stream or partition of it, page by page."""

    def __init__(self, app: App, category: str, stream: str | None, partition_id: int | None) -> None:
        self._app = app
        self._category = category
        self._stream = stream
        self._partition_id = partition_id

    async def page(self, after: After, limit: int) -> EventPage:
        """Return the events after this place."""
        return await self._app.read(
            self._category, stream=self._stream, partition_id=self._partition_id, after=after, limit=limit
        )

    async def start(self, text: str) -> After:
        """Return the place before the first event to show."""
        if text == StartAt.BEGINNING:
            return None
        if text.isdigit():
            return max(0, int(text) - 1)
        if text != StartAt.END:
            return text if "=" in text else instant(text)
        if self._stream is None:
            return _AFTER_ALL
        last = await self._app.read(self._category, stream=self._stream, backwards=True, limit=1)
        return last.events[0].version if last.events else 0

    async def follow(self, after: After, limit: int | None) -> AsyncIterator[Event]:
        """Yield the events, at most `limit`, and wait for more."""
        import asyncio  # only here: importing it takes time

        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        left = limit

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        stop = (await self._app.opened()).notifier.listen(wake)
        try:
            while left is None or left > 0:
                woken.clear()
                size = _PAGE if left is None else min(_PAGE, left)
                page = await self.page(after, size)
                for found in page:
                    yield found
                after = page.cursor
                left = None if left is None else left - len(page)
                if len(page) < size:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL):
                            await woken.wait()
        finally:
            stop()


@event.command()
@click.argument("category")
@click.option("--stream", help="Only this stream.")
@click.option("--partition", "partition_id", type=click.IntRange(0), metavar="N", help="Only this partition.")
@click.option(
    "--from",
    "start",
    default=str(StartAt.BEGINNING),
    show_default=True,
    help="Where to begin: beginning, end, a time, a version (with --stream) or a position.",
)
@click.option("--limit", type=click.IntRange(1, _MOST), help=f"At most this many events.  [default: {_PAGE}]")
@click.option("--follow", "-f", is_flag=True, help="Wait for more events until Ctrl-C, or until --limit is reached.")
@json_option
@store_options
def read(
    target: StoreTarget,
    *,
    category: str,
    stream: str | None,
    partition_id: int | None,
    start: str,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Read events without consuming them, with their payloads.

    Events of a stream are in order; those of several partitions are merged by the time of their append.

    \b
    holdfast event read companies --stream company-7
    holdfast event read companies --from end --follow
    """  # noqa: D301
    if stream is not None and partition_id is not None:
        raise click.UsageError("--stream and --partition exclude each other: a stream is in one partition")

    async def look(app: App) -> EventPage | None:
        reader = _Reader(app, category, stream, partition_id)
        after = await reader.start(start)
        if not follow:
            return await reader.page(after, limit or _PAGE)
        async for found in reader.follow(after, limit):
            click.echo(json_text(_fields(found)) if as_json else _line(_row(found)))
        return None

    page = target.run(look)
    if page is None:
        return
    if as_json:
        show_json({"events": [_fields(found) for found in page], "cursor": page.cursor})
    elif not page.events:
        click.echo("No events.", err=True)
    else:
        show_table(_COLUMNS, [_row(found) for found in page])
        if len(page) == (limit or _PAGE):
            words = [] if stream is None else ["--stream", stream]
            words += [] if partition_id is None else ["--partition", str(partition_id)]
            words += ["--from", str(int(page.cursor) + 1) if stream is not None else page.cursor]
            click.echo(f"There may be more: {command('event', 'read', category, *words)}", err=True)


def _line(row: Sequence[Cell]) -> str:
    return "  ".join(map(displayed, row)) if console().is_terminal else "\t".join(map(piped, row))


def _row(found: Event) -> tuple[Cell, ...]:
    place = f"{found.category}:{found.partition_id}@{found.position}"
    payload = json.dumps(found.payload_or_text, ensure_ascii=False)
    return (found.recorded_at, place, found.stream, found.version, found.name, payload)


def _fields(found: Event) -> dict[str, Any]:
    return {
        "id": found.id,
        "category": found.category,
        "stream": found.stream,
        "name": found.name,
        "version": found.version,
        "partition_id": found.partition_id,
        "position": found.position,
        "recorded_at": found.recorded_at,
        "headers": found.headers,
        "payload": found.payload_or_text,
    }
