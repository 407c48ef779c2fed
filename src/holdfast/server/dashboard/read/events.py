"""The events of one partition, or of one stream, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import CategoryNotFound, ConfigError
from holdfast.model.names import check_name
from holdfast.server.dashboard.reveal import shown
from holdfast.server.redaction import redacted_data
from holdfast.server.state import ServerSettings
from holdfast.store.stream_values import CategoryView
from holdfast.streams.event import Event

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN: Final = 30
CELLS: Final = 64
_DIGITS: Final = 18


class EventsScreen(msgspec.Struct, frozen=True):
    """A page of events. `before` is where the next page begins; None: there are no earlier ones."""

    is_kept: bool = True
    view: CategoryView | None = None
    partition: int | None = None
    stream: str | None = None
    is_single: bool = False
    is_latest: bool = True
    events: tuple[Event, ...] = ()
    before: int | None = None

    @property
    def category(self) -> str:
        """The name of the category."""
        return "" if self.view is None else self.view.name

    @property
    def place(self) -> str:
        """What is read, in words."""
        return f"{self.category}/{self.partition if self.stream is None else self.stream}"

    @property
    def cells(self) -> list[tuple[int, int]]:
        """The first partitions, each with the number of its events that are kept."""
        if self.view is None:
            return []
        ends = zip(self.view.heads[:CELLS], self.view.trimmed[:CELLS], strict=True)
        return [(number, head - trimmed) for number, (head, trimmed) in enumerate(ends)]


async def read_events(app: App, query: Mapping[str, str]) -> EventsScreen:
    """Read a page of events: three statements. Raises `CategoryNotFound`."""
    if not app.backend.capabilities.has_streams:
        return EventsScreen(is_kept=False)
    views = await app.categories()
    name = query.get("category") or None
    if name is None and not views:
        return EventsScreen()
    view = next((each for each in views if name in {None, each.name}), None)
    if view is None:
        raise CategoryNotFound(f"there is no category {check_name('category', name)!r}")
    before = _number(query, "before")
    if query.get("stream"):
        return await _stream(app, view, query["stream"], before)
    partition = _number(query, "partition") or 0
    if partition >= view.partitions:
        raise ConfigError(f"partition={partition}: category {view.name} has the partitions 0 to {view.partitions - 1}")
    position = _number(query, "position")
    if position is not None:
        page = await app.read(view.name, partition_id=partition, after=max(position - 1, 0), limit=1)
        found = tuple(event for event in page if event.position == position)
        return EventsScreen(view=view, partition=partition, is_single=True, is_latest=False, events=found)
    return await _partition(app, view, partition, before)


async def _stream(app: App, view: CategoryView, stream: str, before: int | None) -> EventsScreen:
    page = await app.read(view.name, stream=stream, after=before, backwards=True, limit=SHOWN)
    events = tuple(page)
    more = events[-1].version if len(events) == SHOWN and events[-1].version > 1 else None
    return EventsScreen(view=view, stream=stream, is_latest=before is None, events=events, before=more)


async def _partition(app: App, view: CategoryView, partition: int, before: int | None) -> EventsScreen:
    head, trimmed = view.heads[partition], view.trimmed[partition]
    end = head + 1 if before is None else min(before, head + 1)
    after = max(end - 1 - SHOWN, trimmed)
    page = await app.read(view.name, partition_id=partition, after=after, limit=SHOWN)
    events = tuple(event for event in reversed(page.events) if event.position < end)
    more = after + 1 if after > trimmed else None
    return EventsScreen(view=view, partition=partition, is_latest=before is None, events=events, before=more)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name) or None
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ConfigError(f"{name}={text[:40]!r} is not a whole number")
    return int(text)


class ShownPayload(msgspec.Struct, frozen=True):
    """What may be shown of an event: its payload in one line, and indented with its headers if it stands alone."""

    line: str
    payload: str = ""
    headers: str | None = None
    is_cut: bool = False


def revealed_events(settings: ServerSettings, screen: EventsScreen) -> list[ShownPayload]:
    """Return what may be shown of the events of a page, in their order."""
    return [_revealed(settings, event, screen.is_single) for event in screen.events]


def _revealed(settings: ServerSettings, event: Event, is_single: bool) -> ShownPayload:
    value: Any = redacted_data(settings, event.name, event.payload_or_text)
    line = msgspec.json.encode(value).decode()
    if not is_single:
        return ShownPayload(line)
    payload, is_cut = shown(value)
    headers = redacted_data(settings, event.name, event.headers) if event.headers else None
    return ShownPayload(line, payload, None if headers is None else shown(headers)[0], is_cut)
