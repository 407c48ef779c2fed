"""One holder at a time (I7), and no lease is taken from a live worker (I23)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.holding import may_have_ended_at, operator_resets, promised_leases
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import ClaimSeen, JobHistory
from holdfast.torture.checker.outages import Outage
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Finished


class OneHolder(Invariant):
    """I7.

    A claim or extension that was sent at `sent_us` and acknowledged holds the job at least until `sent_us` plus the
    lease, because the store starts counting later. A claim of the same job answered before then is a second holder,
    unless the first had finished or released the job, was dead, or an operator had reset the lease.
    """

    code = "I7"
    name = "one holder"
    forbids = "two unexpired leases of one job at the same time"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Compare every claim with earlier leases."""
        claims = job.claims
        if len(claims) < 2:  # noqa: PLR2004 - two holders make a conflict
            self.judged += len(claims)
            return
        promised = promised_leases(job)
        ended = may_have_ended_at(job)
        taken = operator_resets(job)
        for index, claim in enumerate(claims):
            self.judged += 1
            at_us = claim.at_us
            for other in claims[:index]:
                until = max((until for sent_us, until in promised.get(other.fence, ()) if sent_us < at_us), default=0)
                if until <= at_us or ended.get(other.fence, at_us + 1) <= at_us:
                    continue
                if any(asked_us <= at_us and other.sent_us <= done_us for asked_us, done_us in taken):
                    continue
                if self.run.was_alive(other.process, at_us):
                    what = (
                        f"fence {claim.fence} was issued while the lease under {other.fence} had "
                        f"{(until - at_us) / 1e6:.3f} s to run and its holder, {other.process}, lived"
                    )
                    yield self.broken(what, job=job, at_us=at_us)


class NoTheft(Invariant):
    """I23.

    A live worker loses a lease only through a fault: leases are extended while a handler runs, however long. After an
    outage that affected every worker, live workers have half a lease to extend before expired leases may be taken. A
    caller of `app.claim` is promised only the lease itself.
    """

    code = "I23"
    name = "no lease stolen"
    forbids = "an expired lease that is taken from a live worker that no fault affected"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._grace_us = run.settings.lease_us * 3 // 10  # half a lease, less the lag of a recorded outage end
        self.unjudged = run.clock_trouble

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Check every attempt that the store records as lost; its holder is known if its claim was answered."""
        row = job.row
        if row is None or not row.attempts or self.unjudged:
            return
        lost = {kept.attempt: kept for kept in row.attempts if kept.outcome == "lost"}
        if not lost:
            return
        child_deaths = {finished.fence for finished in job.of(Finished) if finished.outcome == "lost"}
        for claim in job.claims:
            kept = lost.get(claim.attempt)
            taken_us = None if kept is None else self.run.from_store_clock(kept.ended_us)
            if taken_us is None or claim.fence in child_deaths:  # its own worker reported the death of a child
                continue
            self.judged += 1
            if claim.direct:
                yield from self._cut_short(job, claim, taken_us)
            elif self.run.was_alive(claim.process, taken_us):
                yield from self._taken(job, claim, taken_us)

    def _cut_short(self, job: JobHistory, claim: ClaimSeen, taken_us: int) -> Iterator[Violation]:
        until_us = max((until_us for _, until_us in promised_leases(job).get(claim.fence, ())), default=taken_us)
        if taken_us < until_us:
            what = f"attempt {claim.attempt} was taken {(until_us - taken_us) / 1e6:.3f} s before the end of its lease"
            yield self.broken(what, job=job, at_us=taken_us)

    def _taken(self, job: JobHistory, claim: ClaimSeen, taken_us: int) -> Iterator[Violation]:
        since_us = claim.sent_us - 2 * self.run.settings.lease_us  # jobs claimed before a stop may start after it
        if self.run.was_disturbed(claim.process, since_us, taken_us):
            return
        outages = [o for o in self.run.outages if o.began_us < taken_us and o.ended_us > claim.sent_us]
        if outages:
            if all(self._too_soon(outage, taken_us) for outage in outages):
                what = f"attempt {claim.attempt} was taken from {claim.process} immediately after an outage"
                yield self.broken(what, job=job, at_us=taken_us)
        elif self.run.was_slow(claim.process, since_us, taken_us + self.run.settings.lease_us):
            self._excuse("a store call was slow")
        elif self.run.was_still(claim.process, taken_us):
            self._excuse("its worker was inactive")
        else:
            what = f"attempt {claim.attempt} was taken from {claim.process}, which was alive and had no fault"
            yield self.broken(what, job=job, at_us=taken_us)

    def _too_soon(self, outage: Outage, taken_us: int) -> bool:
        """Return whether live workers had no time to extend; leases taken in the first half predate the outage."""
        middle_us = (outage.began_us + outage.ended_us) // 2
        return outage.is_total and middle_us < taken_us < outage.ended_us + self._grace_us

    def _excuse(self, why: str) -> None:
        name = f"leases taken from live workers: {why}"
        self.figures[name] = self.figures.get(name, 0) + 1
