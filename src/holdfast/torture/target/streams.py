"""What a run of streams reads of its target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.torture.event import HistoryRecord
from holdfast.torture.history import now_us
from holdfast.torture.streams.names import SHARES
from holdfast.torture.streams.records import (
    DumpedEvent,
    DumpedShare,
    ParkedRow,
    ShareObserved,
    SharesSeen,
    StreamEffectRow,
    TransitionSeen,
)

if TYPE_CHECKING:
    from holdfast.torture.target.base import Query
    from holdfast.torture.target.kafka_events import KafkaRunEvents

Record = TypeVar("Record", bound=HistoryRecord)
WAITING, DONE, PARKED, UNOWNED = "waiting", "done", "parked", "unowned"


class StreamReader:
    """Reads the events, shares and effects of a run."""

    def __init__(self, snapshot: Callable[[], AbstractContextManager[Query]]) -> None:
        self._snapshot = snapshot
        self.elsewhere: KafkaRunEvents | None = None
        """Where the events are, if they are not in the store."""

    def counts(self) -> dict[str, int]:
        """Return how many events there are by state; one is done when every consumer has passed it."""
        ends: dict[tuple[str, int], int] = {} if self.elsewhere is None else self.elsewhere.ends()
        with self._snapshot() as query:
            partitions = query.all("partitions_done")
            (parked,), (shares,), (owned,) = (
                query.all(name)[0] for name in ("count_parked", "count_shares", "count_owned")
            )
        heads: list[int] = [ends.get((row[0], row[1]), int(row[2])) for row in partitions]
        head, done = sum(heads), sum(min(row[3], head) for row, head in zip(partitions, heads, strict=True))
        if shares < SHARES:  # some consumers have not subscribed yet
            done = 0
        return {WAITING: head - done, DONE: done, PARKED: parked, UNOWNED: SHARES - owned}

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Return the last number among the effects, and how many of those after `after` are doubles."""
        with self._snapshot() as query:
            return query.all("last_stream_effect")[0][0], query.all("doubled_stream_effects", after=after)[0][0]

    def shares(self) -> SharesSeen:
        """Return all shares."""
        sent_us = now_us()
        with self._snapshot() as query:
            shares = tuple(ShareObserved(*row) for row in query.all("shares_seen"))
            epoch = query.all("epoch_seen")[0][0]
        return SharesSeen(at_us=now_us(), shares=shares, epoch=epoch, sent_us=sent_us)

    def transitions(self, after: int) -> list[TransitionSeen]:
        """Return the transitions of shares whose number is above `after`."""
        with self._snapshot() as query:
            return [_transition(row) for row in query.all("transitions_seen", after=after)]

    def dumped(self) -> Iterator[DumpedEvent | StreamEffectRow | ParkedRow | DumpedShare]:
        """Go over all that the run has left."""
        with self._snapshot() as query:
            for name, record in _DUMPED.items():
                yield from map(record, query.each(name))
        if self.elsewhere is not None:
            yield from self.elsewhere.dumped()


def _transition(row: tuple[Any, ...]) -> TransitionSeen:
    number, consumer, category, partition, epoch, generation, old_state, new_state, node, at = row
    return TransitionSeen(
        at_us=now_us(),
        store_us=at,
        number=number,
        consumer=consumer,
        category=category,
        partition=partition,
        epoch=epoch,
        generation=generation,
        old_state=old_state,
        new_state=new_state,
        node=node or "",
    )


def _parked(row: tuple[Any, ...]) -> ParkedRow:
    *columns, failure = row
    kind = "" if failure is None else str(json.loads(failure).get("error_class", "?"))
    return _recorded(ParkedRow, (*columns, kind))


def _recorded(record: type[Record], row: tuple[Any, ...]) -> Record:
    """Return the record of a row whose columns are its fields, in their order."""
    fields = record.__struct_fields__[len(HistoryRecord.__struct_fields__) :]
    return record(at_us=now_us(), **dict(zip(fields, row, strict=True)))


_DUMPED: dict[str, Callable[[tuple[Any, ...]], DumpedEvent | StreamEffectRow | ParkedRow | DumpedShare]] = {
    "all_events": partial(_recorded, DumpedEvent),
    "all_stream_effects": partial(_recorded, StreamEffectRow),
    "all_parked": _parked,
    "all_shares": partial(_recorded, DumpedShare),
}
"""The statements of the final dump, and the record of a row of each."""
