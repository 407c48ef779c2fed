"""Fences grow with every claim, and nothing is written under a stale one (I6)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    Claimed,
    EffectCommitted,
    ExtendAnswered,
    Extended,
    Finished,
    ProgressAnswered,
    Released,
    Takes,
)

_WORKER_BITS = 20


class Fences(Invariant):
    """I6."""

    code = "I6"
    name = "fences"
    forbids = "a fence that is given out twice or does not grow, and a write under a fence that was no longer the last"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._workers: dict[str, int] = {}
        self._given = array("q")  # fence and worker in one number: of a million claims, eight megabytes

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Look at the fences of one job; remember which worker had which."""
        begun = job.attempts
        claims: list[tuple[int, int]] = []  # fence, and the instant by which it had been given out
        for began in begun:
            self._remember(began.fence, began.worker)
            claims.append((began.fence, began.at_us))
        for claimed in job.of(Claimed):
            self._remember(claimed.fence, claimed.worker)
            claims.append((claimed.fence, claimed.at_us))
        for before, after in pairwise(begun):
            if before.fence == after.fence:
                what = f"attempts {before.attempt} and {after.attempt} began under one fence, {after.fence}"
                yield self.broken(what, job=job, at_us=after.at_us)
        if len(claims) > 1:
            yield from self._stale(job, claims)
        yield from self._effect(job)

    def _stale(self, job: JobHistory, claims: list[tuple[int, int]]) -> Iterator[Violation]:
        for what, fence, sent_us, at_us in _writes(job):
            newer = [given for given, known_us in claims if given > fence and known_us < sent_us]
            if newer:
                text = (
                    f"{what} under fence {fence} was accepted, and {min(newer)} had been given out before it was sent"
                )
                yield self.broken(text, job=job, at_us=at_us)

    def _effect(self, job: JobHistory) -> Iterator[Violation]:
        row = job.row
        if row is None or row.state != "completed" or job.takes is not Takes.TRANSACTION:
            return
        for effect in job.effects:
            if effect.attempt != row.attempt:
                what = f"its effect is of attempt {effect.attempt}, and it was completed by attempt {row.attempt}"
                yield self.broken(what, job=job)

    def _remember(self, fence: int, worker: str) -> None:
        if not worker:  # a job child, which does not know whose it is
            return
        number = self._workers.setdefault(worker, len(self._workers))
        self._given.append((fence << _WORKER_BITS) | number)

    def whole(self) -> Iterator[Violation]:
        """One fence, one claim, one worker."""
        names = list(self._workers)
        before = -1
        for given in sorted(self._given):
            if before != given and before >> _WORKER_BITS == given >> _WORKER_BITS:
                first, second = names[before & _MASK], names[given & _MASK]
                yield self.broken(f"fence {given >> _WORKER_BITS} was given to {first} and to {second}")
            before = given


_MASK = (1 << _WORKER_BITS) - 1


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
