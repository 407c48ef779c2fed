"""The complete history of a stream run, grouped by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from holdfast.torture.checker.run import RunFacts
from holdfast.torture.event import HistoryRecord
from holdfast.torture.streams.checker.gaps import count_positions
from holdfast.torture.streams.records import (
    AppendAnswered,
    AppendCalled,
    AppendRefused,
    AppendUnknown,
    DumpedEvent,
    DumpedShare,
    FaultsOver,
    Handled,
    LeaderWrote,
    Led,
    ParkedRow,
    PositionCommitted,
    SharesSeen,
    StreamEffectRow,
    TransitionSeen,
)

Share = tuple[str, str, int]
Partition = tuple[str, int]


class StreamFacts:
    """Everything is kept in memory: a few hundred bytes per event and consumer."""

    def __init__(self) -> None:
        self.run = RunFacts()
        self.records = 0
        self.calls: dict[str, AppendCalled] = {}
        self.answers: list[AppendAnswered] = []
        self.refused: set[str] = set()
        self.commits: dict[Share, list[PositionCommitted]] = defaultdict(list)
        self.handled: dict[Share, list[Handled]] = defaultdict(list)
        self.led: list[Led] = []
        self.writes: list[LeaderWrote] = []
        self.transitions: list[TransitionSeen] = []
        self.snapshots: list[SharesSeen] = []
        self.over_us: int | None = None
        self.events: dict[Partition, list[DumpedEvent]] = defaultdict(list)
        self.by_id: dict[str, DumpedEvent] = {}
        self.effects: dict[Share, list[StreamEffectRow]] = defaultdict(list)
        self.parked: dict[Share, list[ParkedRow]] = defaultdict(list)
        self.shares: dict[Share, DumpedShare] = {}
        self._notes: dict[type[HistoryRecord], Callable[[Any], None]] = {
            AppendCalled: self._called,
            AppendAnswered: self.answers.append,
            AppendRefused: lambda event: self.refused.add(event.call),
            AppendUnknown: lambda _: None,  # like a missing reply
            PositionCommitted: lambda event: self.commits[event.share].append(event),
            Handled: lambda event: self.handled[event.share].append(event),
            Led: self.led.append,
            LeaderWrote: self.writes.append,
            TransitionSeen: self.transitions.append,
            SharesSeen: self.snapshots.append,
            FaultsOver: self._over,
            DumpedEvent: self._event,
            StreamEffectRow: lambda event: self.effects[event.share].append(event),
            ParkedRow: lambda row: self.parked[row.consumer, row.category, row.partition].append(row),
            DumpedShare: self._share,
        }

    def note(self, process: str, event: HistoryRecord) -> None:
        """Process a record."""
        self.records += 1
        self.run.note(process, event)
        known = self._notes.get(type(event))
        if known is not None:
            known(event)

    def close(self) -> None:
        """Record that all records were read, and sort them."""
        self.run.close()
        self.transitions.sort(key=lambda step: step.number)
        self.snapshots.sort(key=lambda snapshot: snapshot.at_us)
        for rows in self.events.values():
            rows.sort(key=lambda row: row.position)
        if self.run.settings.has_gaps:
            count_positions(self)
        for effects in self.effects.values():
            effects.sort(key=lambda row: row.number)
        for parked in self.parked.values():
            parked.sort(key=lambda row: row.position)
        for handled in self.handled.values():  # a frozen node may write late, under its old generation
            handled.sort(key=lambda event: (event.generation, event.at_us))

    def _called(self, event: AppendCalled) -> None:
        self.calls[event.call] = event

    def _over(self, event: FaultsOver) -> None:
        self.over_us = event.at_us

    def _event(self, row: DumpedEvent) -> None:
        self.events[row.category, row.partition].append(row)
        self.by_id[row.event] = row

    def _share(self, row: DumpedShare) -> None:
        self.shares[row.share] = row
