"""No duplicate effects (I2) and no phantoms (I3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    EffectCommitted,
    Finished,
    OutsideAccepted,
    OutsideRefusal,
    ResetAnswered,
    Takes,
)


class NoDouble(Invariant):
    """I2."""

    code = "I2"
    name = "no duplicate"
    forbids = "an effect committed twice in the store, or accepted twice outside, under one key or two"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._paid: dict[str, str] = {}  # the job of each payment; there are few

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Count the effects and completions of a job."""
        effects = job.effects
        self.judged += bool(effects or job.rows or job.has(OutsideAccepted))
        if job.takes is not Takes.OUTSIDE and len(effects) > 1:
            fences = ", ".join(str(effect.fence) for effect in effects)
            yield self.broken(f"has {len(effects)} effects, under the fences {fences}", job=job)
        if sum(row.completions for row in job.rows) > 1:
            yield self.broken("was completed more than once", job=job)
        completions = {event.fence for event in job.of(EffectCommitted) if event.completes}
        completions |= {
            event.fence for event in job.of(Finished) if event.verdict == "done" and event.outcome == "completed"
        }
        if len(completions) > 1:
            yield self.broken(f"was completed under several fences: {sorted(completions)}", job=job)
        if job.has(OutsideAccepted):
            accepted = Counter(event.key for event in job.of(OutsideAccepted))
            for key, count in accepted.items():
                if count > 1:
                    yield self.broken(f"the outside server accepted {count} effects under the key {key}", job=job)
            yield from self._paid_again(job)
        self._count_repeats(job)

    def _paid_again(self, job: JobHistory) -> Iterator[Violation]:
        """One payment is accepted once, even if its enqueue is repeated under new job ids."""
        for event in job.of(OutsideAccepted):
            before = self._paid.setdefault(event.payment, job.id) if event.payment else job.id
            if before != job.id:
                what = f"its outside effect {event.payment} was accepted before, for job {before}"
                yield self.broken(what, job=job, at_us=event.at_us)

    def _count_repeats(self, job: JobHistory) -> None:
        """Count what is allowed, and how much of the rarer work was done."""
        self._measure("attempts", len(job.attempts))
        self._measure("outside effects refused", len(job.entries_of(OutsideRefusal)))
        self._measure("direct claims", sum(claim.direct for claim in job.claims))
        self._measure("leases reset", sum(answer.answer is True for answer in job.of(ResetAnswered)))

    def _measure(self, name: str, count: int) -> None:
        self.figures[name] = self.figures.get(name, 0) + count


class NoPhantom(Invariant):
    """I3."""

    code = "I3"
    name = "no phantom"
    forbids = "a job or an effect that was never enqueued, or whose enqueue is known to have failed"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Every job that exists or has run was enqueued."""
        if job.row is None and not job.effects and not job.claims:
            return
        self.judged += 1
        if job.is_refused:
            yield self.broken("exists although its enqueue was refused or rolled back", job=job)
        elif job.call is None and not job.is_acknowledged:
            yield self.broken("exists although it was never enqueued", job=job)
        elif job.row is not None and job.row.call in self.run.refused_calls:
            yield self.broken(f"exists although the call {job.row.call} was refused", job=job)
