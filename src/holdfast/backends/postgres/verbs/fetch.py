"""Fetch the next events of a share in one statement, and so from one snapshot."""

from __future__ import annotations

from holdfast.backends.sql.steps import rows
from holdfast.backends.sql.streams.consumers import grant_names
from holdfast.backends.sql.streams.reading import stored
from holdfast.model.allocation import AllocationState, Grant
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched, ParkedEvent

_EVENT, _RETRY, _PARKED_STREAM = 1, 2, 3  # kinds of rows: see the statement


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant."""
    found = yield from rows("fetch", **grant_names(grant), after=after, limit=limit, max_bytes=max_bytes)
    if not found:
        return Fetched([], is_lost=True)
    _, _, _, _, state, position, losses, head, _, _, replay_until, *_ = found[0]
    return Fetched(
        events=[stored(row[1:11]) for row in found if row[0] == _EVENT],
        state=AllocationState(state),
        position=position,
        head=head,
        replay_until=replay_until,
        losses=losses,
        parked_streams=frozenset(row[3] for row in found if row[0] == _PARKED_STREAM),
        retries=tuple(ParkedEvent(stored(row[1:11]), row[11]) for row in found if row[0] == _RETRY),
    )
