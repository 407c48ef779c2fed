"""Events that are set aside: those that failed, and those of their streams behind them.

Whoever parks or unparks holds the share's row, and so does whoever drops or retries what is parked: what is read here
stays true until the end of the transaction.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.backends.postgres.text import clean
from holdfast.backends.sql.steps import rows, run, value
from holdfast.model.allocation import Share
from holdfast.model.outcome import Failure
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, Park, ParkedView, Unpark


class Place(NamedTuple):
    """A share as parameters of a statement."""

    consumer: str
    category_id: int
    partition_id: int


def settle(place: Place, step: Commit, *, by_version: bool) -> Steps[bool]:
    """Unpark and park; False, with nothing written, if there is nothing left to wait behind."""
    handled = [unpark.position for unpark in step.unparks if unpark.failure is None]
    if not (yield from _can_wait(place, step, handled)):
        return False
    if handled:
        yield from run("unpark", **place._asdict(), positions=handled)
    for unpark in step.unparks:
        if unpark.failure is not None:
            yield from _park_again(place, unpark, unpark.failure)
    if step.parks:
        yield from _park(place, step.parks, by_version=by_version)
    return True


def _can_wait(place: Place, step: Commit, handled: list[int]) -> Steps[bool]:
    """Tell whether each event that is to wait behind another of its stream has one, once the unparks are done."""
    behind: list[str] = []
    first: set[str] = set()
    for park in step.parks:
        if park.failure is None and park.stream not in first:
            behind.append(park.stream)
        first.add(park.stream)
    if not behind:
        return True
    found = yield from rows("parked_among", **place._asdict(), streams=behind, handled=handled)
    return len(found) == len(behind)


def _park_again(place: Place, unpark: Unpark, failure: Failure) -> Steps[None]:
    names = {**place._asdict(), "position": unpark.position, "attempts": unpark.attempts, "failure": _text(failure)}
    stream = yield from value("park_again", **names)
    if stream is not None:
        yield from run("retry_no_more", **place._asdict(), stream=stream, position=unpark.position)


def _park(place: Place, parks: tuple[Park, ...], *, by_version: bool) -> Steps[None]:
    waiting = list({park.stream for park in parks if park.failure is None})
    retrying: set[str] = set()
    if waiting:
        retrying = {name for (name,) in (yield from rows("retrying_among", **place._asdict(), streams=waiting))}
    yield from run(
        "park",
        **place._asdict(),
        positions=[park.position for park in parks],
        streams=[park.stream for park in parks],
        failures=[None if park.failure is None else _text(park.failure) for park in parks],
        attempts=[park.attempts for park in parks],
        retrying=[_is_retried(park, retrying) for park in parks],
        by_version=by_version,
    )


def _is_retried(park: Park, retrying: set[str]) -> bool:
    """Tell whether an event is to be retried behind the last one of its stream; from one that is not, none is."""
    if park.failure is not None:
        retrying.discard(park.stream)
    return park.stream in retrying


def _text(failure: Failure) -> str:
    """Return a failure as text; what cannot be kept as it is, is made readable."""
    words = (failure.error_class, failure.message, failure.traceback, failure.signature)
    return msgspec.json.encode(Failure(*map(clean, words))).decode()


def parked(consumer: str, after: ParkedView | None, limit: int) -> Steps[list[ParkedView]]:
    """List parked events in order."""
    found = yield from rows(
        "list_parked",
        consumer=consumer,
        after_category="" if after is None else after.share.category,
        after_partition=-1 if after is None else after.share.partition_id,
        after=-1 if after is None else after.position,
        limit=limit,
    )
    return [
        ParkedView(
            share=Share(consumer, category, partition_id),
            position=position,
            event_id=event_id,
            stream=stream,
            failure=None if failure is None else msgspec.json.decode(failure, type=Failure),
            attempts=attempts,
            is_retrying=retrying,
            parked_us=parked_at,
        )
        for category, partition_id, position, event_id, stream, failure, attempts, retrying, parked_at in found
    ]
