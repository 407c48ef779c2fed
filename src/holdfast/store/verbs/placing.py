"""Computes positions and versions of appended events, for stores that read heads and versions and then write rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import ConfigError, VersionConflict
from holdfast.model.event import Appended, NewEvent, partition_of
from holdfast.store.stream_values import Category

Place = tuple[int, int]  # category and partition
Row = tuple[int, int, int, str, int, str, str, str, str | None, int]
"""A row of the events table: category, partition, position, stream, version, id, name, payload, headers, recorded_at.

A plain tuple, because an append may have very many.
"""


class Known(NamedTuple):
    """An event that is already stored under its id."""

    event_id: str
    version: int
    partition_id: int
    position_id: int


def distinct(events: Sequence[NewEvent]) -> list[NewEvent]:
    """Return each event once: a repeated id gets the place of its first occurrence."""
    firsts: dict[str, NewEvent] = {}
    for event in events:
        firsts.setdefault(event.id, event)
    return list(firsts.values())


def places_of(events: Iterable[NewEvent], categories: Mapping[str, Category]) -> list[Place]:
    """Return the partition of each event."""
    known: dict[tuple[str, str], Place] = {}
    places: list[Place] = []
    for event in events:
        key = (event.category, event.stream)
        if key not in known:
            category = categories[event.category]
            refuse_foreign(category)
            known[key] = (category.category_id, partition_of(event.stream, category.partitions))
        places.append(known[key])
    return places


def refuse_foreign(category: Category) -> None:
    """Raise `ConfigError` for a category whose events are not in this store."""
    if category.home is not None:
        raise ConfigError(
            f"the events of category {category.category!r} are not in this store but in {category.home}: give the app "
            "the URL of that system too, as in App(…, events=…), or set $HOLDFAST_EVENTS_URL"
        )


def conflict(event: NewEvent, actual: int) -> VersionConflict:
    """Return the error for an event whose expected version is not that of its stream."""
    return VersionConflict(event.category, event.stream, expected=event.expected_version or 0, actual=actual)


def headers_of(event: NewEvent) -> str | None:
    """Return the headers of an event as text."""
    return None if event.headers is None else msgspec.json.encode(event.headers).decode()


def as_known(found: Iterable[Known]) -> dict[str, Appended]:
    """Return the results of an append for events that are already stored."""
    return {
        known.event_id: Appended(known.event_id, known.version, known.partition_id, known.position_id, is_new=False)
        for known in found
    }


def answers(events: Sequence[NewEvent], appended: Mapping[str, Appended]) -> list[Appended]:
    """Return the result of an append for each event; an id that is given twice is new only once."""
    listed: list[Appended] = []
    seen: set[str] = set()
    for event in events:
        answer = appended[event.id]
        listed.append(msgspec.structs.replace(answer, is_new=False) if event.id in seen else answer)
        seen.add(event.id)
    return listed


class Placing:
    """One append. `heads`: the last position and `recorded_at` of each partition; `versions`: that of each stream.

    Both are read under the locks of the append. No event is recorded earlier than the one before it.
    """

    def __init__(self, heads: Mapping[Place, tuple[int, int]], versions: Mapping[tuple[int, str], int]) -> None:
        self._heads = dict(heads)
        self._versions = dict(versions)
        self.rows: list[Row] = []

    def add(self, event: NewEvent, place: Place) -> Appended:
        """Assign position and version to a new event; raise `VersionConflict`."""
        category_id, partition_id = place
        version = self._versions[category_id, event.stream]
        if event.expected_version is not None and event.expected_version != version:
            raise conflict(event, version)
        version += 1
        self._versions[category_id, event.stream] = version
        position, recorded_at = self._heads[place]
        position += 1
        self._heads[place] = (position, recorded_at)
        headers = None if event.headers is None else headers_of(event)
        text = (event.stream, version, event.id, event.name, event.payload, headers)
        self.rows.append((category_id, partition_id, position, *text, recorded_at))
        return Appended(event.id, version, partition_id, position, is_new=True)

    def heads(self) -> list[dict[str, int]]:
        """Return the new heads, in ascending order, as parameters of `move_head`."""
        return [
            {"category_id": place[0], "partition_id": place[1], "position_id": position, "recorded_at": recorded_at}
            for place, (position, recorded_at) in sorted(self._heads.items())
        ]
