"""Fences grow with every claim, and nothing is written under a stale one (I6)."""

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
    forbids = "a fence that is given out twice or does not grow, and a write under a fence that was no longer the last"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._given: dict[int, tuple[str, int]] = {}  # to whom, and when it was asked for; one claim is of many jobs

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Look at the fences of one job; remember which worker had which."""
        begun = job.attempts
        self.judged += bool(job.claims)
        for claimed in job.of(Claimed):
            yield from self._once(job, claimed.fence, claimed.worker, claimed.at_us, sent_us=claimed.sent_us)
        for began in begun:
            if began.worker:  # not a job child, which does not know whose it is
                yield from self._once(job, began.fence, began.worker, began.at_us)
        for before, after in pairwise(begun):
            if before.fence == after.fence:
                what = f"attempts {before.attempt} and {after.attempt} began under one fence, {after.fence}"
                yield self.broken(what, job=job, at_us=after.at_us)
        if len(job.claims) > 1:
            yield from self._stale(job)
        if job.has(ResetAnswered):
            yield from self._taken_away(job)
        yield from self._effect(job)

    def _stale(self, job: JobHistory) -> Iterator[Violation]:
        for what, fence, sent_us, at_us in _writes(job):
            newer = [claim.fence for claim in job.claims if claim.fence > fence and claim.at_us < sent_us]
            if newer:
                text = (
                    f"{what} under fence {fence} was accepted, and {min(newer)} had been given out before it was sent"
                )
                yield self.broken(text, job=job, at_us=at_us)

    def _taken_away(self, job: JobHistory) -> Iterator[Violation]:
        """Whoever held the job when a person took it away writes nothing after that was answered."""
        for reset in job.of(ResetAnswered):
            if not reset.answer:
                continue
            stale = {claim.fence for claim in job.claims if claim.at_us < reset.sent_us}
            for what, fence, sent_us, at_us in _writes(job):
                if fence in stale and sent_us > reset.at_us:
                    text = f"{what} under fence {fence} was accepted after a person had taken its lease away"
                    yield self.broken(text, job=job, at_us=at_us)

    def _effect(self, job: JobHistory) -> Iterator[Violation]:
        row = job.row
        if row is None or row.state != "completed" or job.takes is not Takes.TRANSACTION:
            return
        for effect in job.effects:
            if effect.attempt != row.attempt:
                what = f"its effect is of attempt {effect.attempt}, and it was completed by attempt {row.attempt}"
                yield self.broken(what, job=job)

    def _once(self, job: JobHistory, fence: int, worker: str, at_us: int, *, sent_us: int = 0) -> Iterator[Violation]:
        """One fence, one claim, one worker; of a claim that was not recorded itself, only the worker is known."""
        known = self._given.setdefault(fence, (worker, sent_us))
        if known == (worker, sent_us) or (known[0] == worker and not sent_us):
            return
        if known[0] == worker and not known[1]:
            self._given[fence] = (worker, sent_us)
        elif known[0] == worker:
            yield self.broken(f"fence {fence} was given to {worker} in two claims", job=job, at_us=at_us)
        else:
            yield self.broken(f"fence {fence} was given to {known[0]} and to {worker}", job=job, at_us=at_us)


def _writes(job: JobHistory) -> Iterator[tuple[str, int, int, int]]:
    """Yield what the store accepted under a lease: what, fence, when it was sent, when it was answered.

    A finish or release that is repeated after a lost answer is accepted again, by contract, and changes nothing.
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
