"""Events that are set aside: those that failed, and those of their streams behind them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.events import require_category, stored
from holdfast.model.allocation import Share
from holdfast.model.event import StoredEvent
from holdfast.model.outcome import Failure
from holdfast.store.stream_values import Commit, Park, ParkedEvent, ParkedView, Unpark

Place = dict[str, object]


def place(tx: Tx, share: Share) -> Place:
    """Return a share as parameters of a statement."""
    category_id = require_category(tx, share.category).category_id
    return {"consumer": share.consumer, "category_id": category_id, "partition_id": share.partition_id}


def streams(tx: Tx, where: Place, events: Iterable[StoredEvent]) -> frozenset[str]:
    """Return which of the streams of these events have parked ones."""
    given = msgspec.json.encode(list({event.stream for event in events})).decode()
    return frozenset(row[0] for row in tx.rows("parked_streams", {**where, "streams": given}))


def retries(tx: Tx, where: Place, limit: int) -> tuple[ParkedEvent, ...]:
    """Return the first parked events that are to be handled again."""
    return tuple(
        ParkedEvent(stored(tx.row("event_by_id", {"event_id": event_id})), attempts)
        for event_id, attempts in tx.rows("retries", {**where, "limit": limit})
    )


def settle(tx: Tx, where: Place, step: Commit, *, by_version: bool) -> bool:
    """Unpark and park; False, and the caller writes nothing, if there is nothing left to wait behind."""
    if not step.parks and not step.unparks:
        return True
    if not _can_wait(tx, where, step):
        return False
    for unpark in step.unparks:
        _unpark(tx, where, unpark)
    for park in step.parks:
        _park(tx, where, park, by_version=by_version)
    return True


def _can_wait(tx: Tx, where: Place, step: Commit) -> bool:
    """Tell whether each event that is to wait behind another of its stream has one, once the unparks are done."""
    handled = {unpark.position for unpark in step.unparks if unpark.failure is None}
    first: set[str] = set()
    for park in step.parks:
        if park.failure is None and park.stream not in first:
            left = [position for (position,) in tx.rows("parked_positions", {**where, "stream": park.stream})]
            if not set(left) - handled:
                return False
        first.add(park.stream)
    return True


def _unpark(tx: Tx, where: Place, unpark: Unpark) -> None:
    if unpark.failure is None:
        tx.run("unpark", {**where, "position": unpark.position})
        return
    names = {**where, "position": unpark.position, "attempts": unpark.attempts, "failure": _text(unpark.failure)}
    stream = tx.value("park_again", names)
    if stream is not None:
        tx.run("retry_no_more", {**where, "stream": stream, "position": unpark.position})


def _park(tx: Tx, where: Place, park: Park, *, by_version: bool) -> None:
    look = "event_id_at_version" if by_version else "event_id_at_position"
    event_id = tx.value(look, {**where, "stream": park.stream, "position": park.position})
    retrying = tx.value("parked_of_stream", {**where, "stream": park.stream}) if park.failure is None else 0
    names = {
        **where,
        "position": park.position,
        "event_id": event_id,
        "stream": park.stream,
        "failure": _text(park.failure),
        "attempts": park.attempts,
        "retrying": retrying or 0,
        "now": tx.now,
    }
    tx.run("park", names)


def _text(failure: Failure | None) -> str | None:
    return None if failure is None else msgspec.json.encode(failure).decode()


def parked(tx: Tx, consumer: str, after: ParkedView | None, limit: int) -> list[ParkedView]:
    """List parked events in order."""
    names = {
        "consumer": consumer,
        "after_category": "" if after is None else after.share.category,
        "after_partition": -1 if after is None else after.share.partition_id,
        "after": -1 if after is None else after.position,
        "limit": limit,
    }
    return [
        ParkedView(
            share=Share(consumer, category, partition_id),
            position=position,
            event_id=event_id,
            stream=stream,
            failure=None if failure is None else msgspec.json.decode(failure, type=Failure),
            attempts=attempts,
            is_retrying=bool(retrying),
            parked_us=parked_at,
        )
        for category, partition_id, position, event_id, stream, failure, attempts, retrying, parked_at in tx.rows(
            "list_parked", names
        )
    ]
