"""At most one lease per order key at a time (I10)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from holdfast.torture.checker.holding import may_have_ended_at, operator_resets, promised_leases
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import ClaimSeen, JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed


class KeyHeld(NamedTuple):
    """A job of an order key, certainly leased from one time to another; its claim was made between two times."""

    from_us: int
    until_us: int
    sent_us: int
    fence: int
    job: str


class OneOfAKey(Invariant):
    """I10.

    The queue and order key of a job come from its enqueue call; claims name the queue. A lease certainly lasts from the
    reply to its claim until its promised expiry, or until its holder may have ended it or was gone. A claim of another
    job of the same order key that was sent and answered within that time is a second lease. The order of effects within
    a key is checked in the store itself, after the run.
    """

    code = "I10"
    name = "order keys"
    forbids = "two unexpired leases of different jobs of one order key at the same time"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._lines: dict[str, list[KeyHeld]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when a job with an order key was leased."""
        yield from ()
        call = job.call
        if call is None or all(claimed.queue == call.queue for claimed in job.of(Claimed)):
            return
        ended = may_have_ended_at(job)
        promised = promised_leases(job)
        taken = operator_resets(job)
        for claim in job.claims:
            if claim.is_recorded:
                self.judged += 1
                until_us = max((until for _, until in promised.get(claim.fence, ())), default=claim.at_us)
                away = [asked_us for asked_us, done_us in taken if done_us >= claim.sent_us]
                until_us = min([until_us, ended.get(claim.fence, until_us), *away, self._gone_at(claim)])
                held = KeyHeld(claim.at_us, until_us, claim.sent_us, claim.fence, job.id)
                self._lines.setdefault(call.queue, []).append(held)

    def _gone_at(self, claim: ClaimSeen) -> int:
        """Return from when on the holder may be considered dead, or was shutting down."""
        signs = self.run.last_sign.get(claim.process, claim.at_us)
        return min(signs, self.run.asked_to_end.get(claim.process, signs))

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
