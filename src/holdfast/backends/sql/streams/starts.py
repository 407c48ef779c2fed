"""The start positions of the shares of a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.backends.sql.steps import Ask, records, together
from holdfast.model.event import partitions_read
from holdfast.model.instants import to_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import KnownStart, Start, StartAt, Subscription


class Head(NamedTuple):
    """The head of a partition: its last position, and the last trimmed one."""

    category_id: int
    category: str
    partitions: int
    partition_id: int
    position_id: int
    trimmed: int
    home: str | None


def heads(category: str | None) -> Steps[list[Head]]:
    """Return the heads of one category, or of all categories, in order."""
    return (yield from records(Head, "list_heads", category=category))


def places_of(subscription: Subscription) -> Steps[list[Head]]:
    """Return the partitions that a subscription reads."""
    found = yield from heads(subscription.category)
    return [head for head in found if head.partition_id in partitions_read(subscription.stream, head.partitions)]


def start_positions(places: Sequence[Head], stream: str | None, start: Start | KnownStart) -> Steps[list[int]]:
    """Return the position that corresponds to `start` in each of these partitions."""
    if isinstance(start, KnownStart):
        others = yield from start_positions(places, stream, start.otherwise)
        keys = [(place.category, place.partition_id) for place in places]
        return [start.positions.get(key, position) for key, position in zip(keys, others, strict=True)]
    if start is StartAt.BEGINNING or not places:
        return [0] * len(places)
    if isinstance(start, datetime):
        found = yield from together(
            *(ask_position(place.category, place.partition_id, stream, start) for place in places)
        )
        return [answer[0][0] for answer in found]
    ends = yield from ends_of(places, stream)
    return ends if start is StartAt.END else [min(int(start), end) for end in ends]


def ask_position(category: str, partition_id: int, stream: str | None, at: datetime) -> Ask:
    """Return the statement that finds the position of an instant: in a partition or, with `stream`, its version."""
    if stream is None:
        return Ask("position_at", {"category": category, "partition_id": partition_id, "at": to_micros(at)})
    return Ask("version_at", {"category": category, "stream": stream, "at": to_micros(at)})


def ends_of(places: Sequence[Head], stream: str | None) -> Steps[list[int]]:
    """Return the last position of each partition or, for a subscription to one stream, the version of the stream."""
    if stream is None:
        return [place.position_id for place in places]
    found = yield from together(
        *(Ask("stream_version", {"category": place.category, "stream": stream}) for place in places)
    )
    return [answer[0][0] for answer in found]
