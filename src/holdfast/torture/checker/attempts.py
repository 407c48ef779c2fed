"""Attempts are counted at claim, each once, and charged against the limit by the rules of the budget (I5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from holdfast.model.budget import MAX_INTERRUPTED, MAX_LOST
from holdfast.torture.checker.holding import operator_resets
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    AttemptBegan,
    AttemptEnded,
    AttemptRow,
    Claimed,
    DumpedJob,
    Finished,
    ObservedOutcome,
)

KEPT_FIRST: Final = 5
KEPT_LAST: Final = 20
"""If a job has very many attempts without completion, a store keeps the first and the last few rows.

The checker has these numbers for itself: if it used those of the store, it would not notice when they change.
"""

_EXCUSED = frozenset({"snoozed", "released"})
_BROKEN_OFF = "Interrupted"  # the error class of a release after the handler had started


class AttemptsCounted(Invariant):
    """I5.

    Every claim gets the next attempt number, and every attempt that does not complete its job leaves a row. So the rows
    and the completion are numbered 1, 2, 3 … without gap or repetition, for all jobs, whether or not their handlers
    write records; which attempts are charged against the limit is known from the handlers' records only.
    """

    code = "I5"
    name = "attempts"
    forbids = "an attempt that is not counted, counted twice, charged wrongly, or beyond the limit"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Check the attempt numbers in order of their fences."""
        row = job.row
        if not job.claims and (row is None or not (row.attempt or row.attempts)):
            return
        self.judged += 1
        limit = row.max_attempts if row is not None else job.call.max_attempts if job.call else None
        for began in job.attempts:
            if limit is not None and began.used > limit:
                what = f"attempt {began.attempt} started as number {began.used} of at most {limit}"
                yield self.broken(what, job=job, at_us=began.at_us)
        yield from self._numbered(job)
        if limit is not None and not job.was_sent_back:
            yield from self._bounded(job, limit)
        if row is not None:
            yield from self._kept(job, row)
            yield from self._against_store(job, row)

    def _numbered(self, job: JobHistory) -> Iterator[Violation]:
        for before, after in pairwise(job.claims):
            if after.attempt <= before.attempt:
                what = f"attempt {after.attempt} under fence {after.fence} follows attempt {before.attempt}"
                yield self.broken(what, job=job, at_us=after.at_us)
        if not job.attempts:
            return
        numbers = {claim.fence: claim.attempt for claim in job.claims}
        for began in job.attempts:
            if began.attempt != numbers[began.fence]:
                what = (
                    f"attempt {numbers[began.fence]} was claimed under fence {began.fence}, but {began.attempt} started"
                )
                yield self.broken(what, job=job, at_us=began.at_us)

    def _bounded(self, job: JobHistory, limit: int) -> Iterator[Violation]:
        row = job.row
        if row is not None and row.attempt > limit and not _is_trimmed(row):
            outcomes = Counter(kept.outcome for kept in row.attempts)
            counted = outcomes["retried"] + (row.state == "completed")
            if counted > limit:
                yield self.broken(f"was retried {outcomes['retried']} times; the limit is {limit}", job=job)
            released = sum(kept.outcome == "released" and kept.error != _BROKEN_OFF for kept in row.attempts)
            most = limit + MAX_INTERRUPTED + MAX_LOST + outcomes["snoozed"] + released
            if row.attempt > most:
                what = f"was claimed {row.attempt} times; including all excusable ones, {most} are allowed"
                yield self.broken(what, job=job)
        if len(job.attempts) <= limit:
            return
        snoozed = sum(ended.observed is ObservedOutcome.SNOOZED for ended in job.of(AttemptEnded))
        most = limit + MAX_INTERRUPTED + MAX_LOST + snoozed + len(operator_resets(job))
        if len(job.attempts) > most:
            what = f"started {len(job.attempts)} times; including all excusable ones, {most} are allowed"
            yield self.broken(what, job=job)
        lost_alone = sum(_child_losses(job, began) == {"done"} for began in job.attempts)
        if lost_alone > MAX_LOST:
            yield self.broken(f"was lost {lost_alone} times while isolated; {MAX_LOST} are allowed", job=job)

    def _kept(self, job: JobHistory, row: DumpedJob) -> Iterator[Violation]:
        """Compare the attempt rows with the numbers that must exist."""
        last = _last_recorded(row)
        numbers = Counter(kept.attempt for kept in row.attempts)
        wanted = set(range(1, last + 1))
        if _is_trimmed(row):
            wanted -= set(range(KEPT_FIRST + 1, last - KEPT_LAST + 1))
        for number in sorted(wanted - numbers.keys()):
            yield self.broken(f"attempt {number} of {row.attempt} did not complete the job and has no row", job=job)
        for number in sorted(numbers.keys() - wanted):
            what = f"attempt {number} has a row, but the job is {row.state} after {row.attempt} attempts"
            yield self.broken(what, job=job)
        for number in sorted(number for number, times in numbers.items() if times > 1):
            yield self.broken(f"attempt {number} has {numbers[number]} rows", job=job)

    def _against_store(self, job: JobHistory, row: DumpedJob) -> Iterator[Violation]:
        if job.claims and row.attempt < job.claims[-1].attempt:
            what = f"has started attempt {job.claims[-1].attempt}, but the store counts {row.attempt}"
            yield self.broken(what, job=job)
        kept = job.kept
        for began in job.attempts:
            ended = kept.get(began.attempt)
            if ended is not None:
                yield from self._gave_up(job, began, ended)
        if job.was_sent_back:
            return
        for before, after in pairwise(job.attempts):
            between = [kept.get(number) for number in range(before.attempt, after.attempt)]
            if between and None not in between:
                yield from self._next(job, before, after, [ended.outcome for ended in between if ended is not None])

    def _gave_up(self, job: JobHistory, began: AttemptBegan, ended: AttemptRow) -> Iterator[Violation]:
        limit = job.row.max_attempts if job.row is not None else 0
        if ended.outcome == "failed" and began.used < limit and not _is_direct(job, began):
            what = f"failed at attempt number {began.used} of {limit}"
            yield self.broken(what, job=job, at_us=began.at_us)
        if ended.outcome == "retried" and began.used >= limit:
            what = f"is retried after attempt number {began.used} of {limit}"
            yield self.broken(what, job=job, at_us=began.at_us)

    def _next(
        self, job: JobHistory, before: AttemptBegan, after: AttemptBegan, outcomes: list[str]
    ) -> Iterator[Violation]:
        """Compare the charged attempts from one handler start to the next with the outcomes in between.

        The attempt of `before` ended with the first of `outcomes`; the others were claimed without a handler record.
        """
        alone = _child_losses(job, before) == {"done"}
        least, most = self._cost(job, before, outcomes[0], alone=alone)
        for how in outcomes[1:]:
            more = self._cost(job, None, how, alone=False)
            least, most = least + more[0], most + more[1]
        step = after.used - before.used
        if not least <= step <= most:
            what = (
                f"attempt {before.attempt} was {outcomes[0]}{' alone' if alone else ''}"
                f"{''.join(f', then {how}' for how in outcomes[1:])}, and the count of used attempts went from "
                f"{before.used} to {after.used}"
            )
            yield self.broken(what, job=job, at_us=after.at_us)
        if "lost" in outcomes and self.run.settings.isolates and not (_is_direct(job, after) or _ran_alone(job, after)):
            lost = before.attempt + outcomes.index("lost")
            what = f"was lost at attempt {lost}, but attempt {after.attempt} did not run isolated"
            yield self.broken(what, job=job, at_us=after.at_us)

    def _cost(self, job: JobHistory, began: AttemptBegan | None, how: str, *, alone: bool) -> tuple[int, int]:
        """Return the least and most attempts that an outcome may charge; `began` is None without handler record."""
        if how == "retried":
            return 1, 1
        isolates = self.run.settings.isolates
        if how == "lost" and isolates and (began is None or (began.isolated and not alone)):
            return 0, 1  # lost with its worker: this history does not show what else that worker held
        if how == "lost" and isolates and alone:
            return 1, 1
        if how in _EXCUSED or (how == "lost" and isolates):
            is_dear = len(job.claims) > MAX_INTERRUPTED or (began is not None and bool(_child_losses(job, began)))
            return 0, int(is_dear)
        return 0, 1


def _last_recorded(row: DumpedJob) -> int:
    """Return the number of the last attempt with a row: a completing or a running attempt has none."""
    return row.attempt - (row.state in {"completed", "running"})


def _is_trimmed(row: DumpedJob) -> bool:
    return _last_recorded(row) > KEPT_FIRST + KEPT_LAST


def _is_direct(job: JobHistory, began: AttemptBegan) -> bool:
    """Return whether an attempt runs in the process that claimed it directly."""
    return any(claim.direct for claim in job.claims if claim.fence == began.fence)


def _child_losses(job: JobHistory, began: AttemptBegan) -> set[str]:
    """Return the verdicts on reports of a live worker that its child process died during this attempt.

    Such an attempt ran isolated, whether or not the job was lost before: its task always runs in a child.
    """
    return {
        finished.verdict
        for finished in job.of(Finished)
        if finished.fence == began.fence and finished.outcome == "lost" and finished.verdict in {"done", "unknown"}
    }


def _ran_alone(job: JobHistory, began: AttemptBegan) -> bool:
    """Return whether an attempt had to run isolated and did: not in the process that claimed it, if that is known."""
    ran = {entry.process for entry in job.entries_of(AttemptBegan) if entry.event is began}
    claimed = {
        entry.process
        for entry in job.entries_of(Claimed)
        if isinstance(entry.event, Claimed) and entry.event.fence == began.fence
    }
    return began.isolated and not ran & claimed
