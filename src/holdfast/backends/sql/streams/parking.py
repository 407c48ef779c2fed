"""Parked events: those that failed, and later ones of their streams.

A commit that parks or unparks locks the row of the share, as do the verbs that drop or retry parked events: rows that
are read here cannot change before the end of the transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.backends.sql.steps import each, records, rows, value
from holdfast.backends.sql.text import clean
from holdfast.errors import ConfigError
from holdfast.model.allocation import Share
from holdfast.model.instants import to_datetime
from holdfast.model.outcome import Failure
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, Park, ParkedView, Unpark

Place = dict[str, Any]
"""A share as parameters of a statement: consumer, category_id, partition_id."""


class _ListedParked(NamedTuple):
    category: str
    partition_id: int
    position_id: int
    event_id: str
    stream: str
    failure: str | None
    attempts: int
    retrying: bool
    parked_at: int


def settle(place: Place, step: Commit, *, by_version: bool) -> Steps[bool]:
    """Unpark and park; False, with nothing written, if an event was to wait behind parked ones and there are none."""
    handled = [unpark.position for unpark in step.unparks if unpark.failure is None]
    if not (yield from _can_wait(place, step, handled)):
        return False
    yield from each("unpark", [{**place, "position": position} for position in handled])
    yield from _fail_again(place, [unpark for unpark in step.unparks if unpark.failure is not None])
    yield from _park(place, step.parks, by_version=by_version)
    return True


def _can_wait(place: Place, step: Commit, handled: list[int]) -> Steps[bool]:
    """Return whether each event that is to wait still has a parked event of its stream before it after the unparks."""
    behind: list[str] = []
    first: set[str] = set()
    for park in step.parks:
        if park.failure is None and park.stream not in first:
            behind.append(park.stream)
        first.add(park.stream)
    if not behind:
        return True
    found = yield from rows("parked_among", **place, streams=behind, handled=handled)
    return len(found) == len(behind)


def _fail_again(place: Place, failed: list[Unpark]) -> Steps[None]:
    """Record events that failed again; they and later ones of their streams are no longer marked for retry.

    An event that is not being retried, perhaps because of an earlier one in the same commit, is not changed.
    """
    if not failed:
        return
    positions = [unpark.position for unpark in failed]
    found = yield from rows("retrying_at", **place, positions=positions)
    streams: dict[int, str] = dict(found)
    stopped: dict[str, int] = {}
    again: list[dict[str, object]] = []
    for unpark in failed:
        stream = streams.get(unpark.position)
        if stream is None or stopped.get(stream, unpark.position + 1) <= unpark.position:
            continue
        stopped[stream] = unpark.position
        kept = {"position": unpark.position, "failure": _text(unpark.failure), "attempts": unpark.attempts}
        again.append({**place, **kept})
    yield from each("park_again", again)
    yield from each(
        "retry_no_more", [{**place, "stream": stream, "position": position} for stream, position in stopped.items()]
    )


def _park(place: Place, parks: tuple[Park, ...], *, by_version: bool) -> Steps[None]:
    waiting = sorted({park.stream for park in parks if park.failure is None})
    retrying: set[str] = set()
    if waiting:
        retrying = {name for (name,) in (yield from rows("retrying_among", **place, streams=waiting))}
    rows_of = [
        {
            **place,
            "position": park.position,
            "stream": park.stream,
            "failure": _text(park.failure),
            "attempts": park.attempts,
            "retrying": _is_retried(park, retrying),
        }
        for park in parks
    ]
    if parks and (yield from value("home_of_category", category_id=place["category_id"])) is not None:
        yield from each("park_kept", [{**row, **_kept(park)} for park, row in zip(parks, rows_of, strict=True)])
    else:
        yield from each("park_by_version" if by_version else "park_by_position", rows_of)


def _kept(park: Park) -> dict[str, object]:
    """Return the event itself, whose home may delete it meanwhile."""
    if park.event is None:
        raise ConfigError(f"the event at position {park.position} is not in this store: pass it with its park")
    return {"event_id": park.event.id, "event_text": msgspec.json.encode(park.event).decode()}


def _is_retried(park: Park, retrying: set[str]) -> bool:
    """Return whether an event inherits the retry of the one before it in its stream; after a failure none does."""
    if park.failure is not None:
        retrying.discard(park.stream)
    return park.stream in retrying


def _text(failure: Failure | None) -> str | None:
    """Return a failure as text; characters that a store may reject are replaced."""
    if failure is None:
        return None
    words = (failure.error_class, failure.message, failure.traceback, failure.signature)
    return msgspec.json.encode(Failure(*map(clean, words))).decode()


def parked(consumer: str, after: ParkedView | None, limit: int) -> Steps[list[ParkedView]]:
    """List parked events in order."""
    found = yield from records(
        _ListedParked,
        "list_parked",
        consumer=consumer,
        after_category="" if after is None else after.share.category,
        after_partition=-1 if after is None else after.share.partition_id,
        after=-1 if after is None else after.position,
        limit=limit,
    )
    return [
        ParkedView(
            share=Share(consumer, row.category, row.partition_id),
            position=row.position_id,
            event_id=row.event_id,
            stream=row.stream,
            failure=None if row.failure is None else msgspec.json.decode(row.failure, type=Failure),
            attempts=row.attempts,
            is_retrying=bool(row.retrying),
            parked_at=to_datetime(row.parked_at),
        )
        for row in found
    ]
