"""Fences grow with every claim, and no write under a stale fence is accepted (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    Claimed,
    EffectCommitted,
    ExtendAnswered,
    Extended,
    Finished,
    ProgressAnswered,
    Released,
    ResetAnswered,
    Takes,
)


class Fences(Invariant):
    """I6."""

    code = "I6"
    name = "fences"
    forbids = "a fence that is issued twice or does not grow, and an accepted write under a stale fence"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._given: dict[int, tuple[str, int]] = {}  # the worker, and when the claim was sent; one claim has many jobs

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Check the fences of one job; record the worker of each fence."""
        begun = job.attempts
        self.judged += bool(job.claims)
        for claimed in job.of(Claimed):
            yield from self._once(job, claimed.fence, claimed.worker, claimed.at_us, sent_us=claimed.sent_us)
        for began in begun:
            if began.worker:  # empty for a job child, which does not know its worker
                yield from self._once(job, began.fence, began.worker, began.at_us)
        for before, after in pairwise(begun):
            if before.fence == after.fence:
                what = f"attempts {before.attempt} and {after.attempt} started under one fence, {after.fence}"
                yield self.broken(what, job=job, at_us=after.at_us)
        if len(job.claims) > 1:
            yield from self._stale(job)
        if job.has(ResetAnswered):
            yield from self._after_reset(job)
        yield from self._effect(job)

    def _stale(self, job: JobHistory) -> Iterator[Violation]:
        for what, fence, sent_us, at_us in _writes(job):
            newer = [claim.fence for claim in job.claims if claim.fence > fence and claim.at_us < sent_us]
            if newer:
                text = f"{what} under fence {fence} was accepted, but {min(newer)} was issued before it was sent"
                yield self.broken(text, job=job, at_us=at_us)

    def _after_reset(self, job: JobHistory) -> Iterator[Violation]:
        """After the reply to an operator's reset, writes of the former holder are rejected."""
        for reset in job.of(ResetAnswered):
            if not reset.answer:
                continue
            stale = {claim.fence for claim in job.claims if claim.at_us < reset.sent_us}
            for what, fence, sent_us, at_us in _writes(job):
                if fence in stale and sent_us > reset.at_us:
                    text = f"{what} under fence {fence} was accepted after an operator had reset its lease"
                    yield self.broken(text, job=job, at_us=at_us)

    def _effect(self, job: JobHistory) -> Iterator[Violation]:
        row = job.row
        if row is None or row.state != "completed" or job.takes is not Takes.TRANSACTION:
            return
        for effect in job.effects:
            if effect.attempt != row.attempt:
                what = f"its effect is of attempt {effect.attempt}, but it was completed by attempt {row.attempt}"
                yield self.broken(what, job=job)

    def _once(self, job: JobHistory, fence: int, worker: str, at_us: int, *, sent_us: int = 0) -> Iterator[Violation]:
        """One fence, one claim, one worker; if the claim itself was not recorded, only the worker is known."""
        known = self._given.setdefault(fence, (worker, sent_us))
        if known == (worker, sent_us) or (known[0] == worker and not sent_us):
            return
        if known[0] == worker and not known[1]:
            self._given[fence] = (worker, sent_us)
        elif known[0] == worker:
            yield self.broken(f"fence {fence} was issued to {worker} in two claims", job=job, at_us=at_us)
        else:
            yield self.broken(f"fence {fence} was issued to {known[0]} and to {worker}", job=job, at_us=at_us)


def _writes(job: JobHistory) -> Iterator[tuple[str, int, int, int]]:
    """Yield the writes under a lease that the store accepted: what, fence, when sent, when answered.

    A finish or release repeated after a lost reply is, by contract, accepted again and changes nothing.
    """
    for effect in job.of(EffectCommitted):
        yield "an effect", effect.fence, effect.sent_us, effect.at_us
    for progress in job.of(ProgressAnswered):
        if progress.verdict == "done":
            yield "progress", progress.fence, progress.sent_us, progress.at_us
    extends: list[ExtendAnswered | Extended] = [*job.of(ExtendAnswered), *job.of(Extended)]
    for extend in extends:
        if extend.verdict == "done":
            yield "an extension", extend.fence, extend.sent_us, extend.at_us
    unanswered: set[int] = set()
    ends: list[Finished | Released] = [*job.of(Finished), *job.of(Released)]
    for finish in ends:
        if finish.verdict == "done" and finish.fence not in unanswered:
            yield "the end of an attempt", finish.fence, finish.sent_us, finish.at_us
        elif finish.verdict == "unknown":
            unanswered.add(finish.fence)
