"""What is known of a run while it goes on; the view reads it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from holdfast.torture.plan import Fault, RunPlan
from holdfast.torture.target.jobs import LEFT

_EVENTS: Final = 6


class RunPhase(StrEnum):
    """How far a run is."""

    STARTING = "starting"
    FAULTS = "faults"
    DRAINING = "draining"
    READING = "reading"
    CHECKING = "checking"
    OVER = "over"


class RunProgress:
    """The state of a run, for whoever looks."""

    unit: ClassVar[str] = "jobs"
    came: ClassVar[str] = "enqueued"
    states: ClassVar[tuple[str, ...]] = ("scheduled", "ready", "running", "completed", "failed", "cancelled")
    open_states: ClassVar[tuple[str, ...]] = LEFT
    ended_states: ClassVar[tuple[str, ...]] = ("completed", "failed", "cancelled")

    def __init__(self, plan: RunPlan, store: str) -> None:
        self.plan = plan
        self.store = store
        self.phase = RunPhase.STARTING
        self.began = time.monotonic()
        self.produced: dict[str, int] = {}
        self.counts: Mapping[str, int] = {}
        self.done: Mapping[Fault, int] = Counter[Fault]()
        self.wanted: Mapping[Fault, int] = {}
        self.refused: Mapping[Fault, str] = {}
        self.workers = 0
        self.started = 0
        self.deaths = 0
        self.doubled = 0
        """Effects that were seen twice while the run went on; the verdict is the checker's."""
        self.events: deque[str] = deque(maxlen=_EVENTS)
        self.told = 0

    def event(self, text: str) -> None:
        """Take in what the conductor does."""
        self.events.append(text)
        self.told += 1

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        return time.monotonic() - self.began

    @property
    def enqueued(self) -> int:
        """How many jobs were enqueued, as far as the producers have told."""
        return sum(self.produced.values())

    @property
    def ended(self) -> int:
        """How many jobs have ended, at the last look."""
        return sum(self.counts.get(state, 0) for state in self.ended_states)

    @property
    def left(self) -> int:
        """How many have not, at the last look."""
        return sum(self.counts.get(state, 0) for state in self.open_states)
