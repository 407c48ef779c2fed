"""Fetch the next events of a share. Rows are read one by one, so that no more than `max_bytes` of payload is read."""

from __future__ import annotations

from holdfast.backends.sql.streams.consumers import fetched, granted_share
from holdfast.backends.sql.streams.reading import stored
from holdfast.backends.sqlite.execute import direct
from holdfast.model.allocation import Grant
from holdfast.model.payload_limit import within
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant, as of one instant."""
    share = yield from granted_share(grant)
    if share is None:
        return Fetched([], is_lost=True)
    category, partition_id, stream = grant.share.category, grant.share.partition_id, share.stream
    statement = "read_partition" if stream is None else "read_stream"
    page = {"category": category, "partition_id": partition_id, "stream": stream, "after": after, "limit": limit}
    events = yield from direct(lambda tx: within(map(stored, tx.each(statement, page)), max_bytes))()
    return (yield from fetched(grant, share, events, limit))
