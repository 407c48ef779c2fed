"""Fetch the next events of a share."""

from __future__ import annotations

from holdfast.backends.sql.steps import rows
from holdfast.backends.sql.streams.consumers import fetched, granted_share
from holdfast.backends.sql.streams.reading import stored
from holdfast.model.allocation import Grant
from holdfast.model.payload_limit import within
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant; runs in one snapshot."""
    share = yield from granted_share(grant)
    if share is None:
        return Fetched([], is_lost=True)
    place = {"category": grant.share.category, "partition_id": grant.share.partition_id, "stream": share.stream}
    kind = "partition" if share.stream is None else "stream"
    sizes = yield from rows(f"sizes_of_{kind}", **place, after=after, limit=limit)
    last = _last_within([size for (size,) in sizes], max_bytes)
    found = yield from rows(f"read_{kind}", **place, after=after, limit=last)
    return (yield from fetched(grant, share, within(map(stored, found), max_bytes), limit))


def _last_within(sizes: list[int], max_bytes: int) -> int:
    """Return how many of the next events have payloads that fit together, at least one."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > max_bytes and number:
            return number
    return max(1, len(sizes))
