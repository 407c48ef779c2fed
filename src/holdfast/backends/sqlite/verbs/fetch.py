"""Fetch the next events of a share. Rows are read one by one, so that no more than `max_bytes` of payload is read."""

from __future__ import annotations

from holdfast.backends.sql.steps import rows, value
from holdfast.backends.sql.streams.consumers import granted_share, place_names
from holdfast.backends.sql.streams.reading import stored, stream_version
from holdfast.backends.sqlite.execute import direct
from holdfast.model.allocation import AllocationState, Grant
from holdfast.model.payload_limit import within
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched, ParkedEvent


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant, as of one instant."""
    share = yield from granted_share(grant)
    if share is None:
        return Fetched([], is_lost=True)
    category, partition_id, stream = grant.share.category, grant.share.partition_id, share.stream
    statement = "read_partition" if stream is None else "read_stream"
    page = {"category": category, "partition_id": partition_id, "stream": stream, "after": after, "limit": limit}
    events = yield from direct(lambda tx: within(map(stored, tx.each(statement, page)), max_bytes))()
    place = place_names(grant, share)
    streams = list({event.stream for event in events})
    parked = (yield from rows("parked_among", **place, streams=streams, handled=[])) if streams else []
    return Fetched(
        events=events,
        state=AllocationState(share.state),
        position=share.position_id,
        head=(yield from value("find_head", **place) if stream is None else stream_version(category, stream)),
        replay_until=share.replay_until,
        losses=share.losses,
        parked_streams=frozenset(name for (name,) in parked),
        retries=tuple(
            ParkedEvent(stored(row[:-1]), row[-1]) for row in (yield from rows("list_retries", **place, limit=limit))
        ),
    )
