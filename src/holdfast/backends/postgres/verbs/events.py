"""Categories, and reading their events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.steps import rows, run, value
from holdfast.errors import CategoryNotFound, ConfigError
from holdfast.model.event import DEFAULT_PARTITIONS, StoredEvent
from holdfast.model.instants import to_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import CategoryView

_NO_VERSION = 2**62  # above every version


class Category(NamedTuple):
    """A category as it is kept."""

    category_id: int
    partitions: int


def find_categories(names: Sequence[str]) -> Steps[dict[str, Category]]:
    """Return those that there are."""
    found = yield from rows("find_categories", categories=list(names))
    return {name: Category(category_id, partitions) for name, category_id, partitions in found}


def require_category(name: str) -> Steps[Category]:
    """Return a category; raise `CategoryNotFound`."""
    found = yield from find_categories([name])
    if name not in found:
        message = f"there is no category {name!r}: the first append to it makes it"
        raise CategoryNotFound(message)
    return found[name]


def make_categories(names: Sequence[str], partitions: int) -> Steps[None]:
    """Make those that nobody else makes at this moment."""
    yield from rows("add_categories", categories=sorted(names), partitions=partitions)
    yield from run("add_heads", categories=sorted(names))


def open_category(name: str, partitions: int | None) -> Steps[CategoryView]:
    """Return a category, made now if there was none."""
    if not (yield from find_categories([name])):
        yield from make_categories([name], DEFAULT_PARTITIONS if partitions is None else partitions)
    (view,) = yield from categories(name)
    if partitions not in {None, view.partitions}:
        message = (
            f"category {name!r} has {view.partitions} partitions, which is fixed for ever: "
            f"append to a new category if it must have {partitions}"
        )
        raise ConfigError(message)
    return view


def categories(name: str | None = None) -> Steps[list[CategoryView]]:
    """List all categories, or one."""
    return [
        CategoryView(category, partitions, tuple(heads), tuple(trimmed))
        for category, partitions, heads, trimmed in (yield from rows("list_categories", category=name))
    ]


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


def read(category: str, partition_id: int, *, after: int, limit: int) -> Steps[list[StoredEvent]]:
    """Return the next events of a partition."""
    place = {"category": category, "partition_id": partition_id, "after": after, "limit": limit}
    found = yield from rows("read_partition", **place)
    if not found:
        yield from require_category(category)
    return [stored(row) for row in found]


def read_stream(
    category: str, stream: str, *, after: int | None, limit: int, backwards: bool
) -> Steps[list[StoredEvent]]:
    """Return the next events of a stream, or those before."""
    statement = "read_stream_backwards" if backwards else "read_stream"
    begin = after if after is not None else (_NO_VERSION if backwards else 0)
    found = yield from rows(statement, category=category, stream=stream, after=begin, limit=limit)
    return [stored(row) for row in found]


def stream_version(category: str, stream: str) -> Steps[int]:
    """Return the version of a stream, 0 if there is none."""
    return (yield from value("stream_version", category=category, stream=stream)) or 0


def position_at(category: str, partition_id: int, at: datetime) -> Steps[int]:
    """Return the position after which events recorded at or after an instant begin."""
    found = yield from value("position_at", category=category, partition_id=partition_id, at=to_micros(at))
    if found is None:
        yield from require_category(category)
    return found or 0


def version_at(category: str, stream: str, at: datetime) -> Steps[int]:
    """Return the version of a stream after which events recorded at or after an instant begin."""
    found = yield from value("version_at", category=category, stream=stream, at=to_micros(at))
    if found is None:
        yield from require_category(category)
    return found or 0
