"""How an attempt of a worker in another language ended, as an outcome of the model."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.app.claimed_job import ClaimedJob, retry_outcome
from holdfast.model.instants import to_micros
from holdfast.model.job import JobState, LeasedJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Outcome, Retried, Snoozed
from holdfast.runtime.failure import MAX_TRACEBACK, describe_reason
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.runtime.text import clean
from holdfast.server.api.fields import NULL
from holdfast.server.api.lease_schemas import AttemptEnd, FinishedItem, ReportedError
from holdfast.server.problems import Problem
from holdfast.store.values import JobDetails

if TYPE_CHECKING:
    from holdfast.app.app import App

_REASON_LIMIT = 2048
_NONE = timedelta(0)
# The fields of an item that each outcome may have besides the lease.
_FIELDS = {
    "complete": {"result"},
    "retry": {"error", "delay_seconds"},
    "fail": {"error"},
    "snooze": {"delay_seconds"},
    "cancel": {"reason"},
}


def check_item(item: AttemptEnd, where: str = "the body") -> None:
    """Raise `Problem` 422 for a field that the outcome does not have, or lacks."""
    given = {name for name in ("result", "error", "delay_seconds", "reason") if getattr(item, name) not in (None, NULL)}
    wrong = sorted(given - _FIELDS[item.outcome])
    needed = {"retry": "error", "fail": "error", "snooze": "delay_seconds"}.get(item.outcome)
    if wrong:
        raise _invalid(where, f"the outcome {item.outcome} has no {wrong[0]}")
    if needed is not None and needed not in given:
        raise _invalid(where, f"the outcome {item.outcome} needs {needed}")


def _invalid(where: str, detail: str) -> Problem:
    return Problem(422, "invalid-request", f"{where}: {detail}. Nothing was written")


def outcome_of(item: AttemptEnd) -> Outcome:
    """Return the outcome of an attempt that is not to be retried: it does not depend on the job."""
    match item.outcome:
        case "complete":
            return Completed(encode_result_or_reason(msgspec.json.decode(item.result)))
        case "fail":
            return Failed(_failure(item.error))
        case "snooze":
            return Snoozed(timedelta(seconds=item.delay_seconds or 0))
        case _:
            return Cancelled(clean(item.reason or "cancelled by its worker", _REASON_LIMIT))


def outcome_of_retry(app: App, item: FinishedItem, details: JobDetails) -> Outcome:
    """Return the outcome of a failed attempt: the policy of the task decides, unless a delay is given.

    If the lease is no longer held, the store writes nothing: it only compares the outcome with the one that was
    written under this fence, if any, to recognise a repeat.
    """
    failure = _failure(item.error)
    fence = int(item.lease.fence)
    job = details.job
    if details.lease is None or details.lease.fence != fence or job.used_attempts is None:
        return Failed(failure) if job.state is JobState.FAILED else Retried(_NONE, failure)
    decided = retry_outcome(
        ClaimedJob(app, _leased(details, fence, job.used_attempts), _NONE), failure.message, item.delay_seconds
    )
    if isinstance(decided, (Retried, Failed)):
        return msgspec.structs.replace(decided, failure=failure)
    return decided


def _failure(error: ReportedError | None) -> Failure:
    given = error or ReportedError(message="")
    described = describe_reason(given.error_class, given.message)
    return msgspec.structs.replace(described, traceback=clean(given.traceback, MAX_TRACEBACK))


def _leased(details: JobDetails, fence: int, used_attempts: int) -> LeasedJob:
    """Return a job as it was leased, as far as a retry policy needs it."""
    job = details.job
    return LeasedJob(
        id=job.id,
        seq=job.seq,
        queue=job.queue,
        task=job.task,
        payload="",
        headers=None,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=details.timeout,
        _enqueued_us=to_micros(job.enqueued_at),
        turn=0,
        attempt=job.attempt,
        excused=job.attempt - used_attempts,
        interrupted=0,
        lost=0,
        fence=fence,
    )
