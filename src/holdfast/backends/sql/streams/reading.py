"""Reads events of a partition or a stream, and finds the position of an instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.steps import records, value
from holdfast.backends.sql.streams.categories import require_category
from holdfast.backends.sql.streams.starts import ask_position
from holdfast.model.event import StoredEvent
from holdfast.store.steps import Steps
from holdfast.store.verbs.placing import refuse_foreign

_NO_VERSION = 2**62  # above every version


class EventRow(NamedTuple):
    """An event, as stored."""

    event_id: str
    category: str
    stream: str
    event_name: str
    version: int
    partition_id: int
    position_id: int
    payload: str
    headers: str | None
    recorded_at: int


def stored(row: Sequence[Any]) -> StoredEvent:
    """Return an event from its row: the columns of `EventRow`."""
    event_id, category, stream, name, version, partition_id, position, payload, text, recorded_us = row
    headers = None if text is None else msgspec.json.decode(text)
    return StoredEvent(event_id, category, stream, name, version, partition_id, position, payload, headers, recorded_us)


def read(category: str, partition_id: int, *, after: int, limit: int) -> Steps[list[StoredEvent]]:
    """Return the next events of a partition."""
    page = {"category": category, "partition_id": partition_id, "after": after, "limit": limit}
    found = yield from records(EventRow, "read_partition", **page)
    if not found:
        refuse_foreign((yield from require_category(category)))
    return list(map(stored, found))


def read_stream(
    category: str, stream: str, *, after: int | None, limit: int, backwards: bool
) -> Steps[list[StoredEvent]]:
    """Return the next events of a stream, or the previous ones with `backwards`."""
    statement = "read_stream_backwards" if backwards else "read_stream"
    begin = after if after is not None else (_NO_VERSION if backwards else 0)
    found = yield from records(EventRow, statement, category=category, stream=stream, after=begin, limit=limit)
    return list(map(stored, found))


def stream_version(category: str, stream: str) -> Steps[int]:
    """Return the version of a stream, or 0 if it does not exist."""
    return (yield from value("stream_version", category=category, stream=stream)) or 0


def position_at(category: str, partition_id: int, at: datetime, stream: str | None = None) -> Steps[int]:
    """Return the position, or version, after which the events recorded at or after an instant begin."""
    found = yield ask_position(category, partition_id, stream, at)
    if not found or found[0][0] is None:
        yield from require_category(category)
        return 0
    return int(found[0][0])
