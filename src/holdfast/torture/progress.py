"""The state of a run in progress; the live view reads it."""

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
    """The phase of a run."""

    STARTING = "starting"
    FAULTS = "faults"
    DRAINING = "draining"
    READING = "reading"
    CHECKING = "checking"
    OVER = "over"


class RunProgress:
    """The state of a run, for the live view."""

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
        """Duplicate effects seen during the run; the checker decides."""
        self.events: deque[str] = deque(maxlen=_EVENTS)

    def event(self, text: str) -> None:
        """Record an action of the conductor."""
        self.events.append(text)

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        return time.monotonic() - self.began

    @property
    def enqueued(self) -> int:
        """How many jobs were enqueued, as reported by the producers."""
        return sum(self.produced.values())

    @property
    def ended(self) -> int:
        """How many jobs had ended at the last snapshot."""
        return sum(self.counts.get(state, 0) for state in self.ended_states)

    @property
    def left(self) -> int:
        """How many jobs had not ended at the last snapshot."""
        return sum(self.counts.get(state, 0) for state in self.open_states)
