"""Jobs are neither made nor unmade on the way (I19), and batches are all or none (I20)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import EnqueueAnswered, EnqueueCalled


class Conservation(Invariant):
    """I19."""

    code = "I19"
    name = "conservation"
    forbids = "a snapshot with fewer jobs than had been acknowledged, or more than had been asked for"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._called = array("q")
        self._answered = array("q")
        self._rows = 0

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Note when the job was first asked for and first acknowledged."""
        called = job.entries_of(EnqueueCalled)
        if called:
            self._called.append(called[0].event.at_us)
        answered = job.entries_of(EnqueueAnswered)
        if answered:
            self._answered.append(answered[0].event.at_us)
        self._rows += len(job.rows)
        yield from ()

    def whole(self) -> Iterator[Violation]:
        """Hold every snapshot against the two counts."""
        called = list(self._called)
        for call in self.run.calls.values():
            called += [call.at_us] * call.size
        called.sort()
        answered = sorted(self._answered)
        for snapshot in self.run.snapshots:
            total = sum(snapshot.counts.values()) + snapshot.pruned
            least = bisect_left(answered, snapshot.sent_us)
            most = bisect_right(called, snapshot.at_us)
            if not least <= total <= most:
                what = f"a snapshot shows {total} jobs; {least} had been acknowledged and {most} asked for: {snapshot}"
                yield self.broken(what, at_us=snapshot.at_us)
        for dumped in self.run.dumped:
            if dumped.rows != self._rows:
                yield self.broken(f"the final dump counts {dumped.rows} jobs and holds {self._rows}")


class Batches(Invariant):
    """I20."""

    code = "I20"
    name = "batch atomicity"
    forbids = "a batch of which some jobs are in the store and others are not"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._found: dict[str, tuple[int, int, int]] = {}  # call -> size, present, absent

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Count the jobs of each batch that are there."""
        present = job.row is not None or bool(job.effects)
        for entry in job.entries_of(EnqueueCalled):
            call = entry.event
            if isinstance(call, EnqueueCalled) and call.size > 1:
                self._count(call.call, call.size, present=present)
        if job.row is not None and job.row.call in self.run.calls:
            self._count(job.row.call, self.run.calls[job.row.call].size, present=present)
        yield from ()

    def _count(self, call: str, size: int, *, present: bool) -> None:
        _, there, missing = self._found.get(call, (size, 0, 0))
        self._found[call] = (size, there + present, missing + (not present))

    def whole(self) -> Iterator[Violation]:
        """All or none."""
        if not self.run.is_whole:
            return
        for call, (size, there, _) in self._found.items():
            if there not in {0, size}:
                yield self.broken(f"of the {size} jobs of the call {call}, {there} are in the store")
        for call in self.run.answered_calls - self._found.keys():
            if self.run.calls[call].size:
                yield self.broken(f"the call {call} was answered, and none of its jobs is in the store")
