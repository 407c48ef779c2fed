"""Facts about the run as a whole: settings, processes, faults, clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.torture.checker.outages import Outages
from holdfast.torture.events import (
    AttemptBegan,
    Claimed,
    Clock,
    Dumped,
    EnqueueAnswered,
    EnqueueCalled,
    EnqueueRefused,
    Exited,
    Extended,
    FaultBegan,
    FaultEnded,
    Finished,
    HistoryRecord,
    PauseAnswered,
    Released,
    ResumeAnswered,
    ResumeCalled,
    RunBegan,
    Snapshot,
    Started,
)
from holdfast.torture.operator_events import LimitAnswered, ScheduleAdded, ScheduleRemoving

_SLOW = 4  # slow calls per lease: the store itself takes no lease after a wait as long as that
_DONE = "done"
_STILL = 0.4  # of a lease: leases are extended at half their time, so this may cost one


class RunFacts:
    """Collected from all records before any job is checked; its size does not depend on the number of jobs."""

    def __init__(self) -> None:
        self.settings = RunBegan(at_us=0, seed=0, store="", lease_us=0, recovery_us=0)
        self.roles: dict[str, str] = {}
        self.last_sign: dict[str, int] = {}
        self.exits: dict[str, Exited] = {}
        self.asked_to_end: dict[str, int] = {}
        self.workers: dict[str, set[str]] = {}
        """The processes of each worker: those that claim for it or, if no claim was recorded, run its jobs."""
        self._claiming: dict[str, set[str]] = {}
        self._faults: dict[str, list[FaultBegan]] = {}
        self._fault_ends: dict[int, int] = {}
        self._slow_us = 400_000  # until the run is known
        self._slow: dict[str, list[tuple[int, int]]] = {}
        self._silent: dict[str, list[tuple[int, int]]] = {}
        self.snapshots: list[Snapshot] = []
        self.dumped: list[Dumped] = []
        self.calls: dict[str, EnqueueCalled] = {}
        self.refused_calls: set[str] = set()
        self.answered_calls: set[str] = set()
        self.pauses: dict[str, list[tuple[int, int, str]]] = {}
        """Per queue: when a pause was sent, when it was answered, and by which process."""
        self.resumes: dict[str, dict[tuple[str, int], int]] = {}
        """Per queue: which process sent a resume and when; and by when it took effect, if it did."""
        self.limits: dict[str, LimitAnswered] = {}
        """The limits of queues."""
        self.schedules: dict[str, ScheduleAdded] = {}
        self.removals: dict[str, int] = {}
        """When the removal of a schedule was sent first."""
        self.first_us = 0
        self.last_us = 0
        self._open: dict[int, FaultBegan] = {}
        self.outages = Outages()
        self._clock_low: int | None = None
        self._clock_high: int | None = None
        self._notes: dict[type[HistoryRecord], Callable[[str, Any], None]] = {
            RunBegan: self._run_began,
            Started: self._started,
            Exited: self._exited,
            FaultBegan: self._fault_began,
            FaultEnded: self._fault_ended,
            Snapshot: lambda _, event: self.snapshots.append(event),
            Dumped: lambda _, event: self.dumped.append(event),
            Clock: self._clock,
            AttemptBegan: self._worked,
            Claimed: self._claimed,
            Extended: self._called_store,
            Finished: self._called_store,
            Released: self._called_store,
            EnqueueCalled: self._called,
            EnqueueAnswered: self._answered,
            EnqueueRefused: self._refused,
            PauseAnswered: self._paused,
            ResumeCalled: self._resuming,
            ResumeAnswered: self._resumed,
            LimitAnswered: lambda _, event: _keep_first(self.limits, event.queue, event),
            ScheduleAdded: lambda _, event: _keep_first(self.schedules, event.schedule, event),
            ScheduleRemoving: lambda _, event: _keep_first(self.removals, event.schedule, event.at_us),
        }

    def note(self, process: str, event: HistoryRecord) -> None:
        """Process a record."""
        at_us = event.at_us
        before_us = self.last_sign.get(process)
        if before_us is None or at_us > before_us:
            self.last_sign[process] = at_us
            if before_us is not None and at_us - before_us > self._slow_us:
                self._silent.setdefault(process, []).append((before_us, at_us))
        known = self._notes.get(type(event))
        if known is not None:
            known(process, event)

    def close(self) -> None:
        """Record that all records were read; a fault without an end lasted until the end."""
        self.last_us = max(self.last_sign.values(), default=0)
        for fault in self._open.values():
            self.outages.suspect(fault, self.last_us)
        self.workers.update(self._claiming)
        self.outages.close()

    # --- queries of invariants --------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether the run finished: without a final dump, missing jobs prove nothing."""
        return bool(self.dumped)

    def was_alive(self, process: str, at_us: int) -> bool:
        """Return whether a process was certainly alive at a time, and had not been asked to shut down by then."""
        return self.last_sign.get(process, -1) > at_us and self.asked_to_end.get(process, at_us + 1) > at_us

    def killed_at(self, process: str) -> int | None:
        """Return when a process was seen to die of a signal, or None."""
        exited = self.exits.get(process)
        return exited.at_us if exited is not None and exited.signal is not None else None

    def was_disturbed(self, process: str, from_us: int, to_us: int, *, by: str | None = None) -> bool:
        """Return whether a fault (of a kind) was aimed, within a time, at a process or at another one of its name.

        A supervisor and the children that run jobs share the name of their worker.
        """
        return any(
            fault.at_us < to_us and self._fault_ends.get(fault.number, to_us) > from_us and by in {None, fault.fault}
            for fault in self._faults.get(_seat(process), ())
        )

    def was_slow(self, process: str, from_us: int, to_us: int) -> bool:
        """Return whether a store call of a process was slow within a time: the process or the store was overloaded."""
        return any(sent_us < to_us and at_us > from_us for sent_us, at_us in self._slow.get(process, ()))

    def was_still(self, process: str, at_us: int) -> bool:
        """Return whether a process wrote nothing for most of half a lease before a time.

        It may have been idle; but nothing else shows that it was not scheduled.
        """
        since_us = at_us - self.settings.lease_us
        enough_us = _STILL * self.settings.lease_us
        silent = self._silent.get(process, ())
        return any(min(to_us, at_us) - max(from_us, since_us) > enough_us for from_us, to_us in silent)

    def without_outages(self, from_us: int, span_us: int) -> int:
        """Return when `span_us` has elapsed, not counting outages."""
        return self.outages.over(from_us, span_us, lease_us=self.settings.lease_us)

    @property
    def clock_trouble(self) -> str:
        """Why the store's clock cannot be compared with the records, or empty."""
        if self._clock_low is None or self._clock_high is None:
            return "the store's clock was never read"
        return "the store's clock was stepped" if self._clock_low > self._clock_high else ""

    def from_store_clock(self, store_us: int) -> int | None:
        """Return the latest time that a timestamp of the store's clock can mean, or None if that clock was stepped."""
        return None if self.clock_trouble or self._clock_low is None else store_us - self._clock_low

    # --- collecting -------------------------------------------------------------------------------------------------

    def _run_began(self, _: str, event: RunBegan) -> None:
        self.settings = event
        self._slow_us = event.lease_us // _SLOW
        self.first_us = event.at_us

    def _worked(self, process: str, event: AttemptBegan) -> None:
        if event.worker:  # a job child does not know its worker
            known = self.workers.get(event.worker)
            if known is None:
                known = self.workers[event.worker] = set()
            known.add(process)

    def _claimed(self, process: str, event: Claimed) -> None:
        self._claiming.setdefault(event.worker, set()).add(process)
        self._called_store(process, event)

    def _called_store(self, process: str, event: Claimed | Extended | Finished | Released) -> None:
        if isinstance(event, Claimed) or event.verdict == _DONE:
            self.outages.wrote(event.sent_us, event.at_us)
        if event.at_us - event.sent_us > self._slow_us:
            slow = self._slow.setdefault(process, [])
            if not slow or slow[-1] != (event.sent_us, event.at_us):  # a call with many jobs is recorded once for each
                slow.append((event.sent_us, event.at_us))

    def _started(self, process: str, event: Started) -> None:
        self.roles[process] = event.role

    def _exited(self, _: str, event: Exited) -> None:
        self.exits[event.process] = event

    def _fault_began(self, _: str, event: FaultBegan) -> None:
        self._open[event.number] = event
        self._faults.setdefault(_seat(event.target), []).append(event)
        if event.asks:
            self.asked_to_end.setdefault(event.target, event.at_us)

    def _fault_ended(self, _: str, event: FaultEnded) -> None:
        self._fault_ends[event.number] = event.at_us
        began = self._open.pop(event.number, None)
        if began is not None:
            self.outages.suspect(began, event.at_us)

    def _clock(self, _: str, event: Clock) -> None:
        if event.store_us is None:
            return
        low, high = event.store_us - event.at_us, event.store_us - event.sent_us
        self._clock_low = low if self._clock_low is None else max(self._clock_low, low)
        self._clock_high = high if self._clock_high is None else min(self._clock_high, high)

    def _called(self, _: str, event: EnqueueCalled) -> None:
        if not event.jobs:  # those with ids are found with their jobs
            self.calls[event.call] = event

    def _answered(self, _: str, event: EnqueueAnswered) -> None:
        if event.call in self.calls:
            self.answered_calls.add(event.call)

    def _refused(self, _: str, event: EnqueueRefused) -> None:
        if event.call in self.calls:
            self.refused_calls.add(event.call)

    def _paused(self, process: str, event: PauseAnswered) -> None:
        self.pauses.setdefault(event.queue, []).append((event.sent_us, event.at_us, process))

    def _resuming(self, process: str, event: ResumeCalled) -> None:
        self.resumes.setdefault(event.queue, {}).setdefault(
            (process, event.at_us), event.at_us + self.settings.recovery_us
        )

    def _resumed(self, process: str, event: ResumeAnswered) -> None:
        self.resumes.setdefault(event.queue, {})[process, event.sent_us] = event.at_us


def _keep_first(known: dict[str, Any], name: str, value: object) -> None:
    known.setdefault(name, value)


def _seat(process: str) -> str:
    """Return the role and the name of a process, without its number."""
    return process.rpartition("-")[0]
