"""Fetch the next events of a share."""

from __future__ import annotations

from holdfast.backends.sql.steps import rows, value
from holdfast.backends.sql.streams.consumers import granted_share, place_names
from holdfast.backends.sql.streams.reading import stored, stream_version
from holdfast.model.allocation import AllocationState, Grant
from holdfast.model.payload_limit import within
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched, ParkedEvent


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant; runs in one snapshot."""
    share = yield from granted_share(grant)
    if share is None:
        return Fetched([], is_lost=True)
    category, partition_id, stream = grant.share.category, grant.share.partition_id, share.stream
    last = yield from _last_within(grant, stream, after=after, limit=limit, max_bytes=max_bytes)
    page = {"category": category, "after": after, "limit": last}
    if stream is None:
        found = yield from rows("read_partition", partition_id=partition_id, **page)
    else:
        found = yield from rows("read_stream", stream=stream, **page)
    events = within(map(stored, found), max_bytes)
    place = place_names(grant, share)
    streams = sorted({event.stream for event in events})
    parked = (yield from rows("parked_among", **place, streams=streams, handled=[])) if streams else []
    retries = yield from rows("list_retries", **place, limit=limit)
    return Fetched(
        events=events,
        state=AllocationState(share.state),
        position=share.position_id,
        head=(yield from value("head_position", **place) if stream is None else stream_version(category, stream)),
        replay_until=share.replay_until,
        losses=share.losses,
        parked_streams=frozenset(name for (name,) in parked),
        retries=tuple(ParkedEvent(stored(row[:-1]), row[-1]) for row in retries),
    )


def _last_within(grant: Grant, stream: str | None, *, after: int, limit: int, max_bytes: int) -> Steps[int]:
    """Return how many of the next events have payloads that fit together, at least one."""
    place = {"category": grant.share.category, "after": after, "limit": limit}
    if stream is None:
        sizes = yield from rows("sizes_of_partition", partition_id=grant.share.partition_id, **place)
    else:
        sizes = yield from rows("sizes_of_stream", stream=stream, **place)
    total = 0
    for number, (size,) in enumerate(sizes):
        total += size
        if total > max_bytes and number:
            return number
    return max(1, len(sizes))
