"""One job for each nominal time of a schedule (I30)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.operator_events import ScheduleAdded


class OncePerTime(Invariant):
    """I30.

    The nominal times are multiples of the period. None may be left out between two that became jobs, nor before the
    first: missed times are fired later. Those at the end may not have been fired when the schedule was removed, unless
    the recovery bound was over by then, outages not counted.
    """

    code = "I30"
    name = "schedules"
    forbids = "a nominal time of a schedule with two jobs or none, or a job before its nominal time"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._jobs: dict[str, dict[int, str]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record the nominal time of a job."""
        row = job.row
        if row is None or not row.nominal_us:
            return
        self.judged += 1
        before = self._jobs.setdefault(row.schedule, {}).setdefault(row.nominal_us, job.id)
        if before != job.id:
            yield self.broken(f"is the second job of its time of {row.schedule}, after job {before}", job=job)
        if row.enqueued_us < row.nominal_us:
            early = (row.nominal_us - row.enqueued_us) / 1e6
            yield self.broken(f"was enqueued {early:.3f} s before its time of {row.schedule}", job=job)

    def whole_run(self) -> Iterator[Violation]:
        """Look for nominal times without a job."""
        if not self.run.is_whole:
            return
        for added in self.run.schedules.values():
            times = sorted(self._jobs.get(added.schedule, {}))
            for one, other in pairwise(times):
                if other - one != added.every_us:
                    what = f"{added.schedule} has no job for the times between {one} and {other} of the store's clock"
                    yield self.broken(what, job=self._jobs[added.schedule][other])
            yield from self._around(added, times)

    def _around(self, added: ScheduleAdded, times: list[int]) -> Iterator[Violation]:
        """Check the times before the first job, and after the last."""
        begun_us = self.run.from_store_clock(times[0]) if times else None
        if begun_us is not None and begun_us > added.at_us + 2 * added.every_us:
            what = f"{added.schedule} has no job for its first times: {(begun_us - added.at_us) / 1e6:.3f} s"
            yield self.broken(what, job=self._jobs[added.schedule][times[0]])
        last_us = self.run.from_store_clock(times[-1]) if times else added.at_us
        removed_us = self.run.removals.get(added.schedule)
        if last_us is None or removed_us is None:
            self.unjudged = self.run.clock_trouble or "a schedule was not removed"
            return
        if self.run.without_outages(last_us + 2 * added.every_us, self.run.settings.recovery_us) < removed_us:
            what = f"{added.schedule} had no job for {(removed_us - last_us) / 1e6:.3f} s before it was removed"
            yield self.broken(what, at_us=removed_us)
