"""The number of jobs is conserved (I19), and batches are atomic (I20)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import EnqueueAnswered, EnqueueCalled, EnqueueRefused


class Conservation(Invariant):
    """I19."""

    code = "I19"
    name = "conservation"
    forbids = "a snapshot with fewer jobs than were acknowledged, or more than were invoked and not refused"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._called = array("q")
        self._answered = array("q")
        self._rows = 0

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when the job's enqueue was first invoked (unless it failed) and first acknowledged.

        A call with unknown outcome counts for those of its jobs that exist at the end: jobs never leave the store.
        """
        if job.row is not None or job.is_acknowledged or not self.run.is_whole:
            called_us = self._called_at(job)
            if called_us is not None:
                self._called.append(called_us)
        answered = job.entries_of(EnqueueAnswered)
        if answered:
            self._answered.append(answered[0].event.at_us)
        self._rows += len(job.rows)
        yield from ()

    def _called_at(self, job: JobHistory) -> int | None:
        called = job.of(EnqueueCalled) or ([job.call] if job.call is not None else [])
        refused = {refused.call for refused in job.of(EnqueueRefused)} | self.run.refused_calls
        return min((call.at_us for call in called if call.call not in refused), default=None)

    def whole_run(self) -> Iterator[Violation]:
        """Compare every snapshot with the two counts."""
        called = list(self._called)
        if not self.run.is_whole:
            for call in self.run.calls.values():
                called += [call.at_us] * (0 if call.call in self.run.refused_calls else call.size)
        called.sort()
        self.judged += len(self.run.snapshots) + len(self.run.dumped)
        answered = sorted(self._answered)
        for snapshot in self.run.snapshots:
            total = sum(snapshot.counts.values()) + snapshot.pruned
            least = bisect_left(answered, snapshot.sent_us)
            most = bisect_right(called, snapshot.at_us)
            if not self.run.is_whole and self.run.schedules:
                most = max(most, total)  # without a dump it is not known how many jobs these have made
            if not least <= total <= most:
                what = f"a snapshot shows {total} jobs; {least} were acknowledged and {most} invoked: {snapshot}"
                yield self.broken(what, at_us=snapshot.at_us)
        for dumped in self.run.dumped:
            if dumped.rows != self._rows:
                yield self.broken(f"the final dump counts {dumped.rows} jobs but contains {self._rows}")


class Batches(Invariant):
    """I20."""

    code = "I20"
    name = "batch atomicity"
    forbids = "a batch with some jobs in the store and others missing"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._found: dict[str, tuple[int, int, str]] = {}  # call -> size, number found, and one job that should exist

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Count the jobs of each batch that exist."""
        present = job.row is not None or bool(job.effects)
        name = "" if present else job.id
        for entry in job.entries_of(EnqueueCalled):
            call = entry.event
            if isinstance(call, EnqueueCalled) and call.size > 1:
                self._count(call.call, call.size, present=present, name=name)
        size = 0 if job.row is None or job.row.call not in self.run.calls else self.run.calls[job.row.call].size
        if job.row is not None and size:  # a schedule has no size
            self._count(job.row.call, size, present=present, name=name)
        yield from ()

    def _count(self, call: str, size: int, *, present: bool, name: str) -> None:
        _, there, missing = self._found.get(call, (size, 0, ""))
        self._found[call] = (size, there + present, missing or name)

    def whole_run(self) -> Iterator[Violation]:
        """Every batch exists completely or not at all."""
        if not self.run.is_whole:
            return
        self.judged += len(self._found)
        for call, (size, there, missing) in self._found.items():
            if there not in {0, size}:
                yield self.broken(f"of the {size} jobs of the call {call}, {there} are in the store", job=missing)
        for call in self.run.answered_calls - self._found.keys():
            if self.run.calls[call].size:
                yield self.broken(f"the call {call} was acknowledged, but none of its jobs is in the store")
