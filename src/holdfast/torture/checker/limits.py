"""At most as many leases of a task, or of one of its limit keys, at a time as its limit allows (I29)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from holdfast.torture.checker.certain_leases import CertainLease, certain_leases
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation


class WithinLimits(Invariant):
    """I29.

    The limit of a task or key comes from the enqueue calls of its jobs. Only times in which a lease certainly existed
    count.
    """

    code = "I29"
    name = "limits"
    forbids = "more unexpired leases of a task, or of a limit key of it, at the same time than its limit allows"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._leases: dict[tuple[str, int], list[CertainLease]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when a job of a limited task was leased."""
        yield from ()
        if job.call is None or not job.call.max_running:
            return
        leases = list(certain_leases(self.run, job))
        self.judged += len(leases)
        what = f"{job.call.task} and key {job.call.limit_key}" if job.call.limit_key else job.call.task
        known = self._leases.setdefault((what, job.call.max_running), [])
        known += (lease for lease in leases if lease.from_us < lease.until_us)

    def whole_run(self) -> Iterator[Violation]:
        """Count the leases that exist when each of them begins."""
        for (task, most), leases in self._leases.items():
            leases.sort()
            current: list[tuple[int, str]] = []  # by the end of the lease
            for lease in leases:
                while current and current[0][0] <= lease.from_us:
                    heapq.heappop(current)
                heapq.heappush(current, (lease.until_us, lease.job))
                jobs = sorted({job for _, job in current})
                if len(jobs) > most:
                    what = (
                        f"was claimed under fence {lease.fence} as one of {len(jobs)} leased jobs of task {task}, with "
                        f"the limit {most}: {', '.join(jobs)}"
                    )
                    yield self.broken(what, job=lease.job, at_us=lease.from_us)
