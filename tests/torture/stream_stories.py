"""Histories of streams written by hand: one share, a few events, told record by record."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.torture.checker import RunVerdict
from holdfast.torture.events import Clock, Dumped, HistoryRecord, RunBegan
from holdfast.torture.streams.checker import check_stream_events
from holdfast.torture.streams.names import MAIN, PARK, PLAIN, POISONED, SINGLE, SINGLES, USUAL
from holdfast.torture.streams.records import (
    AppendAnswered,
    AppendCalled,
    AppendedAt,
    DumpedEvent,
    DumpedShare,
    FaultsOver,
    Handled,
    Led,
    ParkedRow,
    PositionCommitted,
    ShareObserved,
    SharesSeen,
    StreamEffectRow,
    TransitionSeen,
)

SECOND = 1_000_000
BEGIN = 100 * SECOND
_CATEGORIES = {SINGLE: SINGLES, PLAIN: MAIN, PARK: POISONED}


class StreamTale:
    """The share of one consumer of partition 0; seconds are told from the begin of the run.

    Its first generation is granted to w1 by the leader w1 of epoch 1.
    """

    def __init__(self, consumer: str = SINGLE) -> None:
        self.records: list[tuple[str, HistoryRecord]] = []
        self.share: dict[str, Any] = {"consumer": consumer, "category": _CATEGORIES[consumer], "partition": 0}
        self._numbers = 0
        self._effects = 0
        self._events = 0
        self._versions: dict[str, int] = {}
        self.add(0, RunBegan, seed=1, store="sqlite", lease_us=2 * SECOND, recovery_us=4 * SECOND)
        self.add(0, Clock, sent_us=BEGIN, store_us=BEGIN)
        self.led(0.1, "w1", epoch=1)
        self.step(0.2, "free", "granted", generation=1, node="w1")

    @staticmethod
    def us(seconds: float) -> int:
        return BEGIN + round(seconds * SECOND)

    def add(self, at: float, kind: type[HistoryRecord], **fields: Any) -> StreamTale:
        self.records.append(("worker-w1-11", kind(at_us=self.us(at), **fields)))
        return self

    # --- appends ----------------------------------------------------------------------------------------------------

    def appended(self, *streams: str, name: str = USUAL) -> StreamTale:
        """Append an event to each of these streams, by one call that is answered."""
        first = self._events + 1
        ids = tuple(f"e{first + number}" for number in range(len(streams)))
        self.add(0.3, AppendCalled, call=f"c{first}", events=ids)
        places: list[AppendedAt] = []
        for event, stream in zip(ids, streams, strict=True):
            self._events += 1
            self._versions[stream] = version = self._versions.get(stream, 0) + 1
            places.append(AppendedAt(event, self.share["category"], 0, self._events, version, True))
            self.event(event, self._events, stream, version, name=name)
        return self.add(0.4, AppendAnswered, call=f"c{first}", places=tuple(places))

    def event(self, event: str, position: int, stream: str, version: int, *, name: str = USUAL) -> StreamTale:
        where = {"category": self.share["category"], "partition": 0, "position": position}
        return self.add(90, DumpedEvent, event=event, stream=stream, version=version, name=name, **where)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def committed(
        self, at: float, after: int, position: int, *, generation: int = 1, verdict: str = "done", took: float = 0.01
    ) -> StreamTale:
        sent_us = self.us(at - took)
        told = {"after": after, "position": position, "verdict": verdict, "sent_us": sent_us}
        return self.add(at, PositionCommitted, generation=generation, **told, **self.share)

    def handled(self, at: float, position: int, *, generation: int = 1, node: str = "w1") -> StreamTale:
        told = {"position": position, "event": f"e{position}", "node": node}
        return self.add(at, Handled, generation=generation, **told, **self.share)

    def led(self, at: float, node: str, *, epoch: int, took: float = 0.01) -> StreamTale:
        return self.add(at, Led, node=node, incarnation=f"{node}-1", epoch=epoch, sent_us=self.us(at - took))

    def step(
        self, at: float, old: str, new: str, *, generation: int, node: str, epoch: int = 1, skips: int = 0
    ) -> StreamTale:
        """Note a transition; `skips` numbers were missed before it."""
        self._numbers += 1 + skips
        told = {"number": self._numbers, "epoch": epoch, "old_state": old, "new_state": new, "node": node}
        return self.add(at, TransitionSeen, store_us=self.us(at), generation=generation, **told, **self.share)

    # --- looks, and the end -----------------------------------------------------------------------------------------

    def seen(self, at: float, position: int, *, effect: int, generation: int = 1, state: str = "granted") -> StreamTale:
        share = ShareObserved(**self.share, state=state, generation=generation, position=position, effect=effect)
        return self.add(at, SharesSeen, shares=(share,), epoch=1, sent_us=self.us(at - 0.01))

    def over(self, at: float) -> StreamTale:
        return self.add(at, FaultsOver)

    def effect(self, *positions: int, generation: int = 1, node: str = "w1") -> StreamTale:
        for position in positions:
            self._effects += 1
            told = {"position": position, "event": f"e{position}", "node": node, "number": self._effects}
            self.add(91, StreamEffectRow, generation=generation, **told, **self.share)
        return self

    def parked(self, position: int, stream: str, failure: str = "") -> StreamTale:
        return self.add(
            91, ParkedRow, position=position, event=f"e{position}", stream=stream, failure=failure, **self.share
        )

    def checked(self, position: int | None = None, **left: Any) -> RunVerdict:
        """End the run, with this position or that of the last event, and check it."""
        place = self._events if position is None else position
        self.add(92, DumpedShare, generation=9, state="free", position=place, head=self._events, **self.share)
        self.add(93, Dumped, rows=self._events, effects=self._effects, **left)
        return check_stream_events(self.records)


def replaced(tale: StreamTale, kind: type[HistoryRecord], **fields: Any) -> StreamTale:
    """Return the tale with the first record of a kind told otherwise."""
    for index, (process, event) in enumerate(tale.records):
        if isinstance(event, kind):
            tale.records[index] = (process, msgspec.structs.replace(event, **fields))
            return tale
    raise AssertionError(kind)
