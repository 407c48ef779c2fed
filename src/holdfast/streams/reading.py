"""Reading without consuming: pages of a stream, of a category, or of the log, and the cursor of the next page.

Within a partition events come in order. Between partitions there is no order; a page merges them by the time of
recording, for display, and the cursor contains the position reached in each partition.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.event import StoredEvent
from holdfast.store.events import EventStore
from holdfast.store.stream_values import CategoryView
from holdfast.streams.event import Event

Place = tuple[str, int]
After = str | int | datetime | None
_LEAST_PORTION: Final = 16


class EventPage(msgspec.Struct, frozen=True):
    """Some events, and the cursor of the next page: pass it as `after`. There always is one: more may be appended."""

    events: list[Event]
    cursor: str

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events."""
        return iter(self.events)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.events)


async def read_stream(
    store: EventStore, category: str, stream: str, *, after: After, limit: int, backwards: bool
) -> EventPage:
    """Return a page of one stream."""
    if isinstance(after, datetime):
        message = "a stream is read from a version; to read from a time, read its category"
        raise ConfigError(message)
    version = None if after is None else _number(after)
    stored = await store.read_stream(category, stream, after=version, limit=limit, backwards=backwards)
    last = stored[-1].version if stored else version
    return EventPage([Event(event) for event in stored], "" if last is None else str(last))


async def read_categories(
    store: EventStore, categories: list[CategoryView], *, after: After, limit: int, partition_id: int | None = None
) -> EventPage:
    """Return a page of the partitions of some categories, merged by the time of recording."""
    places = [
        (category.name, number)
        for category in categories
        for number in range(category.partitions)
        if partition_id in {None, number}
    ]
    known = _positions(after) if isinstance(after, str) else {}
    positions: dict[Place, int] = {}
    for place in places:
        positions[place] = await _start(store, place, after, known)
    events = await _merge(store, positions, limit)
    return EventPage([Event(event) for event in events], _cursor(positions))


async def _merge(store: EventStore, positions: dict[Place, int], limit: int) -> list[StoredEvent]:
    """Return the first events after these positions, and advance the positions.

    A page over a thousand partitions needs only a few events of each, so a few are read at a time, and more of those
    that are used up.
    """
    portion = max(_LEAST_PORTION, -(-limit // max(1, len(positions))))
    waiting: list[tuple[tuple[int, str, int, int], StoredEvent]] = []
    ahead: dict[Place, deque[StoredEvent]] = {}
    ended: set[Place] = set()

    async def read_on(place: Place) -> None:
        ahead[place] = deque(await store.read(*place, after=positions[place], limit=portion))
        if len(ahead[place]) < portion:
            ended.add(place)
        bring_up(place)

    def bring_up(place: Place) -> None:
        if ahead[place]:
            event = ahead[place].popleft()
            heapq.heappush(waiting, (_recorded(event), event))

    for place in positions:
        await read_on(place)
    events: list[StoredEvent] = []
    while waiting and len(events) < limit:
        _, event = heapq.heappop(waiting)
        events.append(event)
        place = (event.category, event.partition_id)
        positions[place] = event.position
        if ahead[place] or place in ended:
            bring_up(place)
        elif len(events) < limit:
            await read_on(place)
    return events


async def _start(store: EventStore, place: Place, after: After, known: Mapping[Place, int]) -> int:
    if isinstance(after, datetime):
        if after.tzinfo is None:
            raise ConfigError(f"after={after!r} has no time zone: pass an aware datetime, e.g. datetime.now(UTC)")
        return await store.position_at(*place, after)
    return after if isinstance(after, int) else known.get(place, 0)


def _recorded(event: StoredEvent) -> tuple[int, str, int, int]:
    return event.recorded_us, event.category, event.partition_id, event.position


def _number(after: str | int) -> int | None:
    try:
        return None if after == "" else int(after)
    except ValueError:
        raise _bad_cursor(after) from None


def _cursor(positions: Mapping[Place, int]) -> str:
    return ",".join(f"{name}/{number}={position}" for (name, number), position in sorted(positions.items()))


def _positions(cursor: str) -> dict[Place, int]:
    positions: dict[Place, int] = {}
    try:
        for part in filter(None, cursor.split(",")):
            place, _, position = part.partition("=")
            name, _, number = place.rpartition("/")
            positions[name, int(number)] = int(position)
    except ValueError:
        raise _bad_cursor(cursor) from None
    return positions


def _bad_cursor(cursor: object) -> ConfigError:
    return ConfigError(f"after={cursor!r} is invalid: pass page.cursor, a position, a version or an aware datetime")
