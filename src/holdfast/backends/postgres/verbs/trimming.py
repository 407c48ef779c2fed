"""Delete old events, but none that somebody still needs."""

from __future__ import annotations

from datetime import timedelta

from holdfast.backends.postgres.verbs.events import require_category
from holdfast.backends.sql.steps import Rows, row, rows, run, value
from holdfast.model.event import partition_of
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps


def trim(name: str, *, older_than: timedelta, limit: int, past_unread: bool) -> Steps[int]:
    """Delete the beginning of each partition, at most `limit` events in all; how many.

    The heads are moved at the end, so that appends wait for nothing else.
    """
    category = yield from require_category(name)
    if past_unread:  # what is parked goes with its event: nobody else may touch it meanwhile
        yield from rows("hold_shares_of_category", category=name)
    deleted = 0
    cuts: dict[int, int] = {}
    for partition_id in range(category.partitions):
        if deleted >= limit:
            break
        readers = yield from rows("consumers_of_partition", category=name, partition_id=partition_id)
        *_, head, _, now = readers[0]
        last = head if past_unread else (yield from _last_needless(readers, partition_id, category.partitions))
        count, cut = yield from row(
            "trim_events",
            category_id=category.category_id,
            partition_id=partition_id,
            last=last,
            before=now - span_micros(older_than),
            limit=limit - deleted,
            past_unread=past_unread,
        )
        if count:
            deleted += count
            cuts[partition_id] = cut
    for partition_id, cut in cuts.items():
        yield from run("move_trimmed", category_id=category.category_id, partition_id=partition_id, last=cut)
    return deleted


def _last_needless(readers: Rows, partition_id: int, partitions: int) -> Steps[int]:
    """Return the last position that no consumer needs any more."""
    bounds: list[int] = [readers[0][4]]
    for stream, position, first_parked, category_id, _, is_consumer, _ in readers:
        if not is_consumer:
            continue
        if first_parked is not None:
            bounds.append(first_parked - 1)
        if stream is None:
            bounds.append(position or 0)
        elif partition_of(stream, partitions) == partition_id:
            unread = yield from value(
                "position_of_version", category_id=category_id, stream=stream, after=position or 0
            )
            if unread is not None:
                bounds.append(unread - 1)
    return min(bounds)
