"""Deletes old events, except those that a consumer still needs."""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.sql.steps import rows, run, value
from holdfast.backends.sql.streams.categories import no_category
from holdfast.backends.sql.streams.starts import Head, heads
from holdfast.model.event import partition_of
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category
from holdfast.store.verbs.placing import refuse_foreign


def trim(name: str, *, older_than: timedelta, limit: int, past_unread: bool) -> Steps[int]:
    """Delete the oldest events of each partition, at most `limit` in total; return how many.

    Positions have no gaps, so the last one to delete is found without counting. The heads are written last, because
    appends wait only for these rows.
    """
    found = yield from heads(name)
    if not found:
        raise no_category(name)
    refuse_foreign(Category(name, found[0].category_id, found[0].partitions, found[0].home))
    if past_unread:  # parked rows are deleted with their events: no commit may park or unpark meanwhile
        yield from rows("hold_shares_of_category", category=name)
    before = (yield from value("store_clock")) - span_micros(older_than)
    deleted = 0
    trimmed: list[dict[str, object]] = []
    for head in found:
        last = head.position_id if past_unread else (yield from last_passed(head))
        old = yield from value("position_at", category=name, partition_id=head.partition_id, at=before)
        end = min(last, old, head.trimmed + limit - deleted)
        if end > head.trimmed:
            place = {"category_id": head.category_id, "partition_id": head.partition_id}
            deleted += yield from _delete({**place, "after": head.trimmed, "last": end}, past_unread=past_unread)
            trimmed.append({**place, "last": end})
    for ended in trimmed:
        yield from run("move_trimmed", **ended)
    return deleted


def last_passed(head: Head) -> Steps[int]:
    """Return the last position that no consumer needs any longer; of one without a share here, none is passed."""
    place = {"category": head.category, "category_id": head.category_id, "partition_id": head.partition_id}
    bounds = [head.position_id]
    for stream, position, first_parked in (yield from rows("readers_of_partition", **place)):
        if first_parked is not None:
            bounds.append(first_parked - 1)
        if stream is None:
            bounds.append(position or 0)
        elif partition_of(stream, head.partitions) == head.partition_id:
            of_stream = {"category_id": head.category_id, "stream": stream, "after": position or 0}
            unread = yield from value("position_of_version", **of_stream)
            if unread is not None:
                bounds.append(unread - 1)
    return min(bounds)


def _delete(places: dict[str, object], *, past_unread: bool) -> Steps[int]:
    yield from run("note_trimmed_streams", **places)
    if past_unread:
        yield from run("drop_trimmed_parked", **places)
    return len((yield from rows("trim_events", **places)))
