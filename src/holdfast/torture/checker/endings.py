"""Final states: no job is lost (I1), failed jobs leave no effect (I4), final states are final (I8)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.holding import MAY_BE_DONE
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
    forbids = "an acknowledged job that is not in a final state, or is completed without its effect"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """A job in the store ends; an acknowledged job is in the store; a completed job has its effect."""
        if not self.run.is_whole:
            return
        if job.row is None:
            self.judged += bool(job.is_acknowledged or job.claims)
            if job.is_acknowledged:
                yield self.broken("was acknowledged but is not in the store", job=job)
            elif job.claims:  # its enqueue was not acknowledged, but it was claimed
                what = f"was claimed under fence {job.claims[0].fence} but is no longer in the store"
                yield self.broken(what, job=job, at_us=job.claims[0].at_us)
            return
        self.judged += 1
        if not job.is_ended:
            yield self.broken(f"is {job.row.state} after the drain, not in a final state", job=job)
        elif job.row.state == "completed":
            yield from self._completed(job)
        fences = {effect.fence for effect in job.effects}
        for committed in job.of(EffectCommitted):
            if committed.fence not in fences:
                what = f"its effect under fence {committed.fence} was acknowledged as committed but does not exist"
                yield self.broken(what, job=job, at_us=committed.at_us)

    def _completed(self, job: JobHistory) -> Iterator[Violation]:
        if job.row is not None and not job.row.completions:
            yield self.broken("is completed without a row in the ledger", job=job)
        if job.takes is Takes.TRANSACTION and not job.effects:
            yield self.broken("is completed without its effect", job=job)
        if job.takes is Takes.OUTSIDE and not (job.has(OutsideAccepted) or job.has(OutsideRefusal)):
            yield self.broken("is completed, but its effect never reached the outside server", job=job)


class CleanFailure(Invariant):
    """I4."""

    code = "I4"
    name = "clean failure"
    forbids = (
        "an effect, written in a transaction, of a job that ended as failed or cancelled, of an attempt that was "
        "rolled back, or of a job without effects"
    )

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Failed, cancelled and rolled back attempts leave no effect."""
        if job.row is None or job.takes is Takes.OUTSIDE:
            return
        is_given_up = job.row.state in _GIVEN_UP
        rolled_back = _rolled_back(job)
        self.judged += bool(is_given_up or rolled_back)
        if job.effects and (is_given_up or job.takes is Takes.NOTHING):
            yield self.broken(f"ended as {job.row.state}, but its effect exists", job=job)
        for effect in job.effects:
            rollback = rolled_back.get(effect.fence)
            if rollback is not None:
                what = f"its transaction under fence {effect.fence} was rolled back, but its effect exists"
                yield self.broken(what, job=job, at_us=rollback.at_us)


def _rolled_back(job: JobHistory) -> dict[int, EffectRolledBack]:
    """Return the certain rollbacks of a job, by fence.

    A rollback is not certain if another transaction of the same attempt was or may have been committed, or if the wait
    for the reply was interrupted.
    """
    doubtful = {event.fence for event in (*job.of(EffectCommitted), *job.of(EffectUnknown))}
    doubtful |= {event.fence for event in job.of(Finished) if event.verdict in MAY_BE_DONE}  # in a batch
    return {
        event.fence: event
        for event in job.of(EffectRolledBack)
        if event.fence not in doubtful and event.error not in _BROKEN_OFF
    }


class Absorbing(Invariant):
    """I8."""

    code = "I8"
    name = "final states"
    forbids = "a job that leaves a final state without an operator's retry, or that is in two states at once"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """No claim follows a final state, and the final state does not change."""
        self.judged += job.is_ended
        if len(job.rows) > 1:
            states = " and ".join(sorted(row.state for row in job.rows))
            yield self.broken(f"is in several states at once: {states}", job=job)
        for committed in job.of(EffectCommitted):
            if committed.completes:
                yield from self._claimed_after(job, committed.fence, "its completion was committed")
        for finished in job.of(Finished):
            if finished.verdict == "done" and (
                finished.outcome == "completed" or (finished.outcome in _GIVEN_UP and not job.was_sent_back)
            ):
                yield from self._claimed_after(job, finished.fence, f"it had ended as {finished.outcome}")
                if job.row is not None and job.row.state != finished.outcome:
                    what = f"its end as {finished.outcome} was acknowledged, but it is now {job.row.state}"
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
                yield self.broken(f"was cancelled before it started, but it is now {job.row.state}", job=job)
            for kept in job.kept.values():
                if kept.outcome == "cancelled":
                    what = f"was reported as cancelled before it started, but attempt {kept.attempt} was running"
                    yield self.broken(what, job=job, at_us=answer.at_us)

    def _kept(self, job: JobHistory) -> Iterator[Violation]:
        if job.row is None:
            return
        for kept in job.row.attempts:
            if kept.outcome in _GIVEN_UP and job.row.attempt > kept.attempt:
                yield self.broken(f"continued after attempt {kept.attempt} had ended it as {kept.outcome}", job=job)

    def _claimed_after(self, job: JobHistory, fence: int, what: str) -> Iterator[Violation]:
        first = min((claim for claim in job.claims if claim.fence > fence), key=lambda claim: claim.at_us, default=None)
        if first is not None:
            text = f"{what} under fence {fence}, but it was claimed again under {first.fence}"
            yield self.broken(text, job=job, at_us=first.at_us)
