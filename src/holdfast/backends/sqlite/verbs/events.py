"""Append and read events. The write lock of the file puts appends in order by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.errors import CategoryNotFound, ConfigError, VersionConflict
from holdfast.model.event import DEFAULT_PARTITIONS, Appended, NewEvent, StoredEvent, partition_of
from holdfast.model.instants import to_micros
from holdfast.store.stream_values import CategoryView

_encode = msgspec.json.encode
_NO_VERSION = 2**62  # above every version


class Category(NamedTuple):
    """A category as it is kept."""

    category_id: int
    partitions: int


def find_category(tx: Tx, name: str) -> Category | None:
    """Return a category, None if there is none."""
    row = tx.row("find_category", {"category": name})
    return None if row is None else Category(*row)


def require_category(tx: Tx, name: str) -> Category:
    """Return a category; raise `CategoryNotFound`."""
    category = find_category(tx, name)
    if category is None:
        message = f"there is no category {name!r}: the first append to it makes it"
        raise CategoryNotFound(message)
    return category


def open_category(tx: Tx, name: str, partitions: int | None) -> CategoryView:
    """Return a category, made now if there was none."""
    category = find_category(tx, name) or _make(tx, name, partitions or DEFAULT_PARTITIONS)
    if partitions not in {None, category.partitions}:
        message = (
            f"category {name!r} has {category.partitions} partitions, which is fixed for ever: "
            f"append to a new category if it must have {partitions}"
        )
        raise ConfigError(message)
    return next(view for view in categories(tx) if view.name == name)


def _make(tx: Tx, name: str, partitions: int) -> Category:
    category_id = int(tx.value("add_category", {"category": name, "partitions": partitions}))
    tx.many("add_head", [(category_id, number) for number in range(partitions)])
    return Category(category_id, partitions)


def categories(tx: Tx) -> list[CategoryView]:
    """List all categories."""
    return [
        CategoryView(name, partitions, tuple(msgspec.json.decode(heads)), tuple(msgspec.json.decode(trimmed)))
        for name, partitions, heads, trimmed in tx.rows("list_categories")
    ]


# --- append -----------------------------------------------------------------------------------------------------------


class _Partition:
    """The end of a partition while an append goes on."""

    def __init__(self, tx: Tx, category_id: int, partition_id: int) -> None:
        self.key = (category_id, partition_id)
        place = {"category_id": category_id, "partition_id": partition_id}
        self.position, _, recorded = tx.row("head", place)
        self.recorded = max(tx.now, recorded)


class _Append:
    """One append: where each event goes, and what is to be written."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._categories: dict[str, Category] = {}
        self._partitions: dict[tuple[int, int], _Partition] = {}
        self._versions: dict[tuple[int, str], int] = {}
        self._rows: list[tuple[object, ...]] = []
        self._written: dict[str, Appended] = {}

    def add(self, event: NewEvent) -> Appended:
        """Give a new event its place."""
        again = self._written.get(event.id)
        if again is not None:
            return msgspec.structs.replace(again, is_new=False)
        category = self._category(event.category)
        version = self._next_version(category, event)
        partition = self._partition(category, event.stream)
        partition.position += 1
        headers = None if event.headers is None else _encode(event.headers).decode()
        place = (*partition.key, partition.position)
        what = (event.stream, version, event.id, event.name, event.payload, headers, partition.recorded)
        self._rows.append((*place, *what))
        appended = Appended(event.id, version, partition.key[1], partition.position, is_new=True)
        self._written[event.id] = appended
        return appended

    def write(self) -> None:
        """Write events and heads."""
        self._tx.many("add_event", self._rows)
        self._tx.many("move_head", [(part.position, part.recorded, *part.key) for part in self._partitions.values()])

    def _category(self, name: str) -> Category:
        category = self._categories.get(name)
        if category is None:
            category = find_category(self._tx, name) or _make(self._tx, name, DEFAULT_PARTITIONS)
            self._categories[name] = category
        return category

    def _partition(self, category: Category, stream: str) -> _Partition:
        key = (category.category_id, partition_of(stream, category.partitions))
        if key not in self._partitions:
            self._partitions[key] = _Partition(self._tx, *key)
        return self._partitions[key]

    def _next_version(self, category: Category, event: NewEvent) -> int:
        key = (category.category_id, event.stream)
        version = self._versions.get(key)
        if version is None:
            version = stream_version(self._tx, category.category_id, event.stream)
        if event.expected_version not in {None, version}:
            expected = event.expected_version or 0
            raise VersionConflict(event.category, event.stream, expected=expected, actual=version)
        self._versions[key] = version + 1
        return version + 1


def append(tx: Tx, events: Sequence[NewEvent]) -> list[Appended]:
    """Append events, all or none: whoever calls it rolls back when it raises."""
    known = _known(tx, events)
    work = _Append(tx)
    appended = [known.get(event.id) or work.add(event) for event in events]
    work.write()
    return appended


def _known(tx: Tx, events: Sequence[NewEvent]) -> dict[str, Appended]:
    """Return the places of events whose ids are known: nearly always none, which one look tells."""
    ids = _encode([event.id for event in events]).decode()
    if tx.row("any_known_event", {"event_ids": ids}) is None:
        return {}
    found: dict[str, Appended] = {}
    for event in events:
        row = tx.row("known_event", {"event_id": event.id})
        if row is not None:
            version, partition_id, position = row
            found[event.id] = Appended(event.id, version, partition_id, position, is_new=False)
    return found


# --- read -------------------------------------------------------------------------------------------------------------


def stored(row: Any) -> StoredEvent:
    """Return an event from its row."""
    event_id, category, stream, name, version, partition_id, position, payload, headers, recorded = row
    return StoredEvent(
        id=event_id,
        category=category,
        stream=stream,
        name=name,
        version=version,
        partition_id=partition_id,
        position=position,
        payload=payload,
        headers=None if headers is None else msgspec.json.decode(headers),
        recorded_us=recorded,
    )


def read(tx: Tx, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:
    """Return the next events of a partition."""
    category_id = require_category(tx, category).category_id
    place = {"category_id": category_id, "partition_id": partition_id, "after": after, "limit": limit}
    return [stored(row) for row in tx.rows("read_partition", place)]


def read_stream(
    tx: Tx, category: str, stream: str, *, after: int | None, limit: int, backwards: bool
) -> list[StoredEvent]:
    """Return the next events of a stream, or those before."""
    found = find_category(tx, category)
    if found is None:
        return []
    begin = after if after is not None else (_NO_VERSION if backwards else 0)
    place = {"category_id": found.category_id, "stream": stream, "after": begin, "limit": limit}
    return [stored(row) for row in tx.rows("read_stream_backwards" if backwards else "read_stream", place)]


def stream_version(tx: Tx, category_id: int, stream: str) -> int:
    """Return the version of a stream, 0 if there is none."""
    return int(tx.value("stream_version", {"category_id": category_id, "stream": stream}) or 0)


def position_at(tx: Tx, category: str, partition_id: int, at: datetime) -> int:
    """Return the position after which events recorded at or after an instant begin."""
    category_id = require_category(tx, category).category_id
    place = {"category_id": category_id, "partition_id": partition_id}
    head = tx.row("head", place)
    if head is None:
        return 0
    position, trimmed, _ = head

    def recorded(position: int) -> int | None:
        found: int | None = tx.value("recorded_at_position", {**place, "position": position})
        return found

    return last_before(to_micros(at), trimmed, position, recorded)


def version_at(tx: Tx, category_id: int, stream: str, at: datetime) -> int:
    """Return the version of a stream after which events recorded at or after an instant begin."""
    place = {"category_id": category_id, "stream": stream}
    last = stream_version(tx, category_id, stream)
    first = tx.value("first_version", place)

    def recorded(version: int) -> int | None:
        found: int | None = tx.value("recorded_at_version", {**place, "position": version})
        return found

    return last if first is None else last_before(to_micros(at), first - 1, last, recorded)


def last_before(at: int, low: int, high: int, recorded: Callable[[int], int | None]) -> int:
    """Return the last place past `low`, up to `high`, that was recorded before an instant; `low` if none was.

    Places have no holes, and the times of recording never fall.
    """
    while low < high:
        middle = (low + high + 1) // 2
        moment = recorded(middle)
        if moment is not None and moment >= at:
            high = middle - 1
        else:
            low = middle
    return low
