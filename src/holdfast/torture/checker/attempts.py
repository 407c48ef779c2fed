"""Attempts are counted when they begin, each once, and held against the limit as the rules say (I5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.model.budget import MAX_INTERRUPTED, MAX_LOST
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import AttemptBegan, AttemptEnded, AttemptRow, Believed, Claimed, Finished, ResetCalled

_COUNTED = frozenset({"retried"})
_EXCUSED = frozenset({"snoozed", "released"})


class Attempts(Invariant):
    """I5."""

    code = "I5"
    name = "attempts"
    forbids = "an attempt that is not counted, counted twice, held against the limit wrongly, or beyond the limit"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Follow the numbers of the attempts in the order of their fences."""
        begun = job.attempts
        if not begun:
            return
        limit = job.row.max_attempts if job.row is not None else job.call.max_attempts if job.call else None
        for began in begun:
            if limit is not None and began.used > limit:
                what = f"attempt {began.attempt} began as number {began.used} of at most {limit}"
                yield self.broken(what, job=job, at_us=began.at_us)
        for before, after in pairwise(begun):
            if after.attempt <= before.attempt and after.fence != before.fence:
                what = f"attempt {after.attempt} under fence {after.fence} follows attempt {before.attempt}"
                yield self.broken(what, job=job, at_us=after.at_us)
        yield from self._bounded(job, limit)
        if job.row is not None:
            yield from self._against_store(job, job.kept)

    def _bounded(self, job: JobHistory, limit: int | None) -> Iterator[Violation]:
        if limit is None or job.was_sent_back or job.has(ResetCalled) or len(job.attempts) <= limit:
            return
        snoozed = sum(ended.believed is Believed.SNOOZED for ended in job.of(AttemptEnded))
        most = limit + MAX_INTERRUPTED + MAX_LOST + snoozed
        if len(job.attempts) > most:
            what = f"began {len(job.attempts)} times; with all that may be excused, {most} are allowed"
            yield self.broken(what, job=job)
        lost_alone = sum(_told_lost(job, began) == {"done"} for began in job.attempts)
        if lost_alone > MAX_LOST:
            yield self.broken(f"was lost {lost_alone} times while it ran alone: {MAX_LOST} are allowed", job=job)

    def _against_store(self, job: JobHistory, kept: dict[int, AttemptRow]) -> Iterator[Violation]:
        row = job.row
        if row is None:
            return
        last = job.attempts[-1]
        if row.attempt < last.attempt:
            yield self.broken(f"has begun attempt {last.attempt}, and the store counts {row.attempt}", job=job)
        is_trimmed = len(row.attempts) >= 2 * self.run.settings.kept_attempts
        for began in job.attempts:
            open_end = began.attempt == row.attempt and row.state in {"completed", "running"}
            if not (is_trimmed or open_end or began.attempt in kept or job.has(ResetCalled)):
                what = f"attempt {began.attempt} did not complete it and has left no record"
                yield self.broken(what, job=job, at_us=began.at_us)
        by_number = {began.attempt: began for began in job.attempts}
        for number, ended in kept.items():
            before, after = by_number.get(number), by_number.get(number + 1)
            if before is None:
                continue
            yield from self._gave_up(job, before, ended)
            if after is not None and not job.was_sent_back:
                yield from self._next(job, before, after, how=ended.outcome)

    def _gave_up(self, job: JobHistory, began: AttemptBegan, ended: AttemptRow) -> Iterator[Violation]:
        limit = job.row.max_attempts if job.row is not None else 0
        if ended.outcome == "failed" and began.used < limit:
            what = f"was given up at attempt number {began.used} of {limit}"
            yield self.broken(what, job=job, at_us=began.at_us)
        if ended.outcome == "retried" and began.used >= limit:
            what = f"is to run again after attempt number {began.used} of {limit}"
            yield self.broken(what, job=job, at_us=began.at_us)

    def _next(self, job: JobHistory, before: AttemptBegan, after: AttemptBegan, *, how: str) -> Iterator[Violation]:
        step = after.used - before.used
        alone = _told_lost(job, before) == {"done"}
        if how in _COUNTED:
            fits = step == 1
        elif how == "lost" and self.run.settings.isolates and before.isolated and not alone:
            fits = step in {0, 1}  # it was lost with its worker: what else that held, this history does not say
        elif how in _EXCUSED or (how == "lost" and self.run.settings.isolates and not alone):
            fits = step == 0 or len(job.attempts) > MAX_INTERRUPTED or bool(_told_lost(job, before))
        elif how == "lost" and self.run.settings.isolates:
            fits = step == 1
        else:
            fits = True
        if not fits:
            what = (
                f"attempt {before.attempt} was {how}{' alone' if alone else ''}, and the count of used "
                f"attempts went from {before.used} to {after.used}"
            )
            yield self.broken(what, job=job, at_us=after.at_us)
        if how == "lost" and self.run.settings.isolates and not _ran_alone(job, after):
            what = f"was lost at attempt {before.attempt}, and attempt {after.attempt} ran beside others"
            yield self.broken(what, job=job, at_us=after.at_us)


def _told_lost(job: JobHistory, began: AttemptBegan) -> set[str]:
    """Return the verdicts on the word of a living worker that a child of its own has died under this attempt.

    Such an attempt ran alone, for its task always does, whether or not it was lost before.
    """
    return {
        finished.verdict
        for finished in job.of(Finished)
        if finished.fence == began.fence and finished.outcome == "lost" and finished.verdict in {"done", "unknown"}
    }


def _ran_alone(job: JobHistory, began: AttemptBegan) -> bool:
    """Tell whether an attempt was to run alone and did: not in the process that had claimed it, if that is known."""
    ran = {entry.process for entry in job.entries_of(AttemptBegan) if entry.event is began}
    claimed = {
        entry.process
        for entry in job.entries_of(Claimed)
        if isinstance(entry.event, Claimed) and entry.event.fence == began.fence
    }
    return began.isolated and not ran & claimed
