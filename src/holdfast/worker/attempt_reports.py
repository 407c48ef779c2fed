"""Reports the starts and ends of attempts to the hooks; makes a value only if it has observers."""

from __future__ import annotations

import time
from datetime import timedelta

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import JobEnd, JobEndWord, JobStart
from holdfast.model.budget import Counters, after_loss
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import OUTCOME_WORDS, Failed, Lost, Outcome, Retried, Snoozed


class AttemptReports:
    """The reports of one worker."""

    def __init__(self, hooks: Hooks, worker_id: str) -> None:
        self._hooks = hooks
        self._worker_id = worker_id
        self._raised: dict[tuple[int, int], BaseException] = {}

    @property
    def wants_all(self) -> bool:
        """Whether the start or end of every attempt is observed; otherwise only the ends of those that failed."""
        return bool(self._hooks.job_start.observers or self._hooks.job_end.observers)

    def started(self, job: LeasedJob) -> None:
        """Report the start of an attempt."""
        if self._hooks.job_start.observers:
            self._hooks.job_start.emit(JobStart(job, self._worker_id))

    def raised(self, job: LeasedJob, error: BaseException) -> None:
        """Keep the exception of an attempt until its end is reported."""
        self._raised[job.seq, job.fence] = error

    def ended(self, job: LeasedJob, outcome: Outcome, began: float) -> Outcome:
        """Report the end of an attempt; return its outcome."""
        self._report(job, outcome, OUTCOME_WORDS[type(outcome)], began)
        return outcome

    def settled(self, job: LeasedJob, began: float, *, is_aborted: bool) -> None:
        """Report an end without an outcome to write: its own transaction has completed the job, or it was aborted."""
        self._report(job, None, "aborted" if is_aborted else "completed", began)

    def _report(self, job: LeasedJob, outcome: Outcome | None, word: JobEndWord, began: float) -> None:
        hooks = self._hooks
        error = self._raised.pop((job.seq, job.fence), None) if self._raised else None
        failure = outcome.failure if isinstance(outcome, Retried | Failed | Lost) else None
        special = None if failure is None else hooks.job_retry if _runs_again(job, outcome) else hooks.job_fail
        if not hooks.job_end.observers and (special is None or not special.observers):
            return
        end = JobEnd(
            job,
            self._worker_id,
            word,
            timedelta(seconds=time.monotonic() - began),
            failure,
            error,
            delay=outcome.delay if isinstance(outcome, Retried | Snoozed) else None,
            is_asked=isinstance(outcome, Retried) and outcome.is_asked,
        )
        hooks.job_end.emit(end)
        if special is not None:
            special.emit(end)


def _runs_again(job: LeasedJob, outcome: Outcome | None) -> bool:
    if not isinstance(outcome, Lost):
        return isinstance(outcome, Retried)
    counters = Counters(job.attempt, job.excused, job.interrupted, job.lost)
    return after_loss(counters, max_attempts=job.max_attempts, alone=True).failed_because is None
