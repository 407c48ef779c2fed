"""Queues keep their limits: so many leases at a time, and so many claims in any time (I31)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from holdfast.torture.checker.certain_leases import CertainLease, certain_leases
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed
from holdfast.torture.operator_events import LimitAnswered

_WINDOW = 100  # claims: an excess that continues is one within so many


class PacedQueues(Invariant):
    """I31.

    Only claims that were sent after the limit was set are judged; leases of earlier ones count. Leases count while they
    certainly existed. A number of claims is too large if the rate does not allow it even for the time from when the
    first was sent to the last reply.
    """

    code = "I31"
    name = "limits of queues"
    forbids = "more leases of a queue at the same time than its limit allows, or more claims in a time than its rate"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._leases: dict[str, list[CertainLease]] = {}
        self.unjudged = run.clock_trouble and f"the rate: {run.clock_trouble}"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when a job of a queue with a limit was leased."""
        yield from ()
        claimed = job.of(Claimed)
        if claimed and claimed[0].queue in self.run.limits:
            self._leases.setdefault(claimed[0].queue, []).extend(certain_leases(self.run, job))

    def whole_run(self) -> Iterator[Violation]:
        """Judge each queue."""
        for queue, leases in self._leases.items():
            limit = self.run.limits[queue]
            judged = sorted(lease for lease in leases if lease.sent_us >= limit.at_us)
            self.judged += len(judged)
            yield from self._running(limit, sorted(leases))
            if limit.step_us and not self.unjudged:
                yield from self._rate(limit, sorted(judged, key=lambda lease: lease.sent_us))

    def _running(self, limit: LimitAnswered, leases: Sequence[CertainLease]) -> Iterator[Violation]:
        current: list[tuple[int, str]] = []  # by the end of the lease
        for lease in leases:
            while current and current[0][0] <= lease.from_us:
                heapq.heappop(current)
            heapq.heappush(current, (lease.until_us, lease.job))
            jobs = {job for until_us, job in current if until_us > lease.from_us}
            if len(jobs) > limit.running and lease.sent_us >= limit.at_us:
                what = f"was claimed as one of {len(jobs)} leased jobs of {limit.queue}, with the limit {limit.running}"
                yield self.broken(what, job=lease.job, at_us=lease.from_us)

    def _rate(self, limit: LimitAnswered, claims: Sequence[CertainLease]) -> Iterator[Violation]:
        """A claim moves the rate by one step; it is less than `burst` steps ahead of the clock before the last one."""
        for first, begun in enumerate(claims):
            until_us = begun.from_us
            for count, lease in enumerate(claims[first : first + _WINDOW]):
                until_us = max(until_us, lease.from_us)
                took_us = until_us - begun.sent_us
                if (count - limit.burst) * limit.step_us > took_us:
                    what = (
                        f"was claimed as the last of {count + 1} jobs of {limit.queue} in {took_us / 1e6:.3f} s, with "
                        f"one each {limit.step_us / 1e6:g} s and {limit.burst} at once"
                    )
                    yield self.broken(what, job=lease.job, at_us=lease.from_us)
                    return
