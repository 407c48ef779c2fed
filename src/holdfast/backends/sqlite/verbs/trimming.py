"""Delete old events, but none that somebody still needs."""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.events import require_category
from holdfast.model.event import partition_of
from holdfast.model.instants import span_micros


def trim(tx: Tx, name: str, *, older_than: timedelta, limit: int, past_unread: bool) -> int:
    """Delete the beginning of each partition, at most `limit` events in all; how many."""
    category = require_category(tx, name)
    before = tx.now - span_micros(older_than)
    deleted = 0
    for partition_id in range(category.partitions):
        place = {"category_id": category.category_id, "partition_id": partition_id}
        last, _, _ = tx.row("head", place)
        if not past_unread:
            last = min(last, *_needed(tx, name, place, category.partitions))
        deleted += _delete(tx, place, last, before, limit - deleted, past_unread=past_unread)
        if deleted >= limit:
            break
    return deleted


def _needed(tx: Tx, name: str, place: dict[str, int], partitions: int) -> list[int]:
    """Return for each consumer the last position that it does not need any more."""
    bounds = [2**62]
    first_parked = tx.value("first_parked", place)
    if first_parked is not None:
        bounds.append(first_parked - 1)
    for _, stream, position in tx.rows("consumers_of_category", {**place, "category": name}):
        if stream is None:
            bounds.append(position or 0)
        elif partition_of(stream, partitions) == place["partition_id"]:
            parameters = {"category_id": place["category_id"], "stream": stream, "after": position or 0}
            unread = tx.value("position_of_version", parameters)
            if unread is not None:
                bounds.append(unread - 1)
    return bounds


def _delete(tx: Tx, place: dict[str, int], last: int, before: int, limit: int, *, past_unread: bool) -> int:
    rows = tx.rows("oldest_events", {**place, "last": last, "before": before, "limit": limit})
    if not rows:
        return 0
    ends = {stream: version for _, stream, version in rows}
    cut = rows[-1][0]
    tx.run("trim_events", {**place, "last": cut})
    tx.run("move_trimmed", {**place, "last": cut})
    tx.many("note_trimmed_stream", [(place["category_id"], stream, version) for stream, version in ends.items()])
    if past_unread:
        tx.run("trim_parked", place)
    return len(rows)
