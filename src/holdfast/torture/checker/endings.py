"""How jobs end: none is lost (I1), failed ones leave nothing behind (I4), an end is an end (I8)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    CancelAnswered,
    EffectCommitted,
    EffectRolledBack,
    EffectUnknown,
    Finished,
    OutsideAccepted,
    OutsideRefusal,
    Takes,
)

_GIVEN_UP = frozenset({"failed", "cancelled"})
_BROKEN_OFF = frozenset({"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit"})


class NoLoss(Invariant):
    """I1."""

    code = "I1"
    name = "no loss"
    forbids = "a job that was acknowledged and has not ended, or has ended as completed without its effect"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """A job that is in the store ends; an acknowledged one is in the store; completed means that it took effect."""
        if not self.run.is_whole:
            return
        if job.row is None:
            self.judged += bool(job.is_acknowledged or job.claims)
            if job.is_acknowledged:
                yield self.broken("was acknowledged, and the store does not know it", job=job)
            elif job.claims:  # nobody was told that it is in, but somebody was given it
                what = f"was claimed under fence {job.claims[0].fence}, and the store does not know it any more"
                yield self.broken(what, job=job, at_us=job.claims[0].at_us)
            return
        self.judged += 1
        if not job.is_ended:
            yield self.broken(f"has not ended: it is {job.row.state} after the drain", job=job)
        elif job.row.state == "completed":
            yield from self._completed(job)
        fences = {effect.fence for effect in job.effects}
        for committed in job.of(EffectCommitted):
            if committed.fence not in fences:
                what = f"its effect under fence {committed.fence} was confirmed as committed, and is not there"
                yield self.broken(what, job=job, at_us=committed.at_us)

    def _completed(self, job: JobHistory) -> Iterator[Violation]:
        if job.row is not None and not job.row.completions:
            yield self.broken("is completed without a row in the ledger of completions", job=job)
        if job.takes is Takes.TRANSACTION and not job.effects:
            yield self.broken("is completed without its effect", job=job)
        if job.takes is Takes.OUTSIDE and not (job.has(OutsideAccepted) or job.has(OutsideRefusal)):
            yield self.broken("is completed, and its effect never reached the outside server", job=job)


class CleanFailure(Invariant):
    """I4."""

    code = "I4"
    name = "clean failure"
    forbids = (
        "an effect, written in a transaction, of a job that ended as failed or cancelled, of an attempt that was told "
        "that it is rolled back, or of a job that takes none"
    )

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """What failed, was cancelled or was rolled back has written nothing that stayed."""
        if job.row is None or job.takes is Takes.OUTSIDE:
            return
        is_given_up = job.row.state in _GIVEN_UP
        rolled_back = _rolled_back(job)
        self.judged += bool(is_given_up or rolled_back)
        if job.effects and (is_given_up or job.takes is Takes.NOTHING):
            yield self.broken(f"ended as {job.row.state}, and its effect is there", job=job)
        for effect in job.effects:
            told = rolled_back.get(effect.fence)
            if told is not None:
                what = f"its transaction under fence {effect.fence} was rolled back, and its effect is there"
                yield self.broken(what, job=job, at_us=told.at_us)


def _rolled_back(job: JobHistory) -> dict[int, EffectRolledBack]:
    """Return by fence the rollbacks of a job that are beyond doubt.

    Not where another transaction of the same attempt was or may have been committed, nor where the wait for the answer
    was broken off.
    """
    doubtful = {event.fence for event in (*job.of(EffectCommitted), *job.of(EffectUnknown))}
    return {
        event.fence: event
        for event in job.of(EffectRolledBack)
        if event.fence not in doubtful and event.error not in _BROKEN_OFF
    }


class Absorbing(Invariant):
    """I8."""

    code = "I8"
    name = "an end is an end"
    forbids = "a job that leaves a final state without a person's retry, or that stands in two states at once"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Nothing is claimed after the end, and the end stays what it was."""
        self.judged += job.is_ended
        if len(job.rows) > 1:
            states = " and ".join(sorted(row.state for row in job.rows))
            yield self.broken(f"stands in several places at once: {states}", job=job)
        for committed in job.of(EffectCommitted):
            if committed.completes:
                yield from self._claimed_after(job, committed.fence, "its completion was committed")
        for finished in job.of(Finished):
            if finished.verdict == "done" and (
                finished.outcome == "completed" or (finished.outcome in _GIVEN_UP and not job.was_sent_back)
            ):
                yield from self._claimed_after(job, finished.fence, f"it had ended as {finished.outcome}")
                if job.row is not None and job.row.state != finished.outcome:
                    what = f"its end as {finished.outcome} was confirmed, and now it is {job.row.state}"
                    yield self.broken(what, job=job, at_us=finished.at_us)
        if not job.was_sent_back:
            yield from self._cancelled(job)
            yield from self._kept(job)

    def _cancelled(self, job: JobHistory) -> Iterator[Violation]:
        for answer in job.of(CancelAnswered):
            if answer.answer != "cancelled":
                continue
            later = [claim.at_us for claim in job.claims if claim.sent_us > answer.at_us]
            if later:
                yield self.broken("was claimed after it had been cancelled", job=job, at_us=min(later))
            if job.row is not None and job.row.state != "cancelled":
                yield self.broken(f"was cancelled before it began, and now it is {job.row.state}", job=job)
            for kept in job.kept.values():
                if kept.outcome == "cancelled":
                    what = f"was called cancelled before it began, and attempt {kept.attempt} had to be told"
                    yield self.broken(what, job=job, at_us=answer.at_us)

    def _kept(self, job: JobHistory) -> Iterator[Violation]:
        if job.row is None:
            return
        for kept in job.row.attempts:
            if kept.outcome in _GIVEN_UP and job.row.attempt > kept.attempt:
                yield self.broken(f"went on after attempt {kept.attempt} had ended it as {kept.outcome}", job=job)

    def _claimed_after(self, job: JobHistory, fence: int, what: str) -> Iterator[Violation]:
        first = min((claim for claim in job.claims if claim.fence > fence), key=lambda claim: claim.at_us, default=None)
        if first is not None:
            text = f"{what} under fence {fence}, and it was claimed again under {first.fence}"
            yield self.broken(text, job=job, at_us=first.at_us)
