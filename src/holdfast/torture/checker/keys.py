"""At most one lease per order key at a time (I10)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.certain_leases import CertainLease, certain_leases
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed


class OneOfAKey(Invariant):
    """I10.

    The queue and order key of a job come from its enqueue call; claims name the queue. A claim of another job of the
    same order key that was sent and answered while a lease certainly existed is a second lease. The order of effects
    within a key is checked in the store itself, after the run.
    """

    code = "I10"
    name = "order keys"
    forbids = "two unexpired leases of different jobs of one order key at the same time"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._lines: dict[str, list[CertainLease]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when a job with an order key was leased."""
        yield from ()
        call = job.call
        if call is None or all(claimed.queue == call.queue for claimed in job.of(Claimed)):
            return
        for lease in certain_leases(self.run, job):
            self.judged += 1
            self._lines.setdefault(call.queue, []).append(lease)

    def whole_run(self) -> Iterator[Violation]:
        """Compare each lease of a key with the previous lease that lasts longest."""
        for line, leases in self._lines.items():
            leases.sort()
            for before, after in pairwise(leases):
                if before.fence == after.fence and before.job != after.job:
                    what = f"was claimed with job {before.job} of its order key, {line}, under fence {after.fence}"
                    yield self.broken(what, job=after.job, at_us=after.from_us)
            last = leases[0]
            for held in leases[1:]:
                if last.from_us <= held.sent_us and held.from_us < last.until_us and last.job != held.job:
                    what = (
                        f"was claimed under fence {held.fence} while job {last.job} of its key, {line}, was leased "
                        f"under fence {last.fence} for {(last.until_us - held.from_us) / 1e6:.3f} s more"
                    )
                    yield self.broken(what, job=held.job, at_us=held.from_us)
                if held.until_us > last.until_us:
                    last = held
