"""Fetch the next events of a share in one statement, and so from one snapshot."""

from __future__ import annotations

from holdfast.backends.sql.steps import rows
from holdfast.backends.sql.streams.consumers import grant_names
from holdfast.backends.sql.streams.reading import stored
from holdfast.model.allocation import Grant, ShareState
from holdfast.model.event import StoredEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Fetched, ParkedEvent

_EVENT, _RETRY = 1, 2  # kinds of rows: see the statement


def fetch(grant: Grant, *, after: int, limit: int, max_bytes: int) -> Steps[Fetched]:
    """Return the next events and the state of the grant."""
    found = yield from rows("fetch", **grant_names(grant), after=after, limit=limit, max_bytes=max_bytes)
    if not found:
        return Fetched([], is_lost=True)
    (_, _, _, _, state, position, losses, head, _, _, replay_until, _, _), *others = found  # the share comes first
    events: list[StoredEvent] = []
    retries: list[ParkedEvent] = []
    parked_streams: set[str] = set()
    for (kind, event_id, category, stream, name, version, partition_id, place, payload, headers, recorded_us, attempts,
         _) in others:  # fmt: skip
        row = event_id, category, stream, name, version, partition_id, place, payload, headers, recorded_us
        if kind == _EVENT:
            events.append(stored(row))
        elif kind == _RETRY:
            retries.append(ParkedEvent(stored(row), attempts))
        else:
            parked_streams.add(stream)
    return Fetched(
        events,
        state=ShareState(state),
        position=position,
        head=head,
        replay_until=replay_until,
        losses=losses,
        parked_streams=frozenset(parked_streams),
        retries=tuple(retries),
    )
