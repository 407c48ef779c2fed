"""Operator actions on one job: cancel, retry, reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import JobNotFound, StoreUnavailable
from holdfast.model.budget import Counters, after_retry, after_return
from holdfast.model.job import JobState
from holdfast.model.outcome import Failure
from holdfast.model.turn import turn_of
from holdfast.store.job_rows import ENDED, ById, Change, JobRow, JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Cancellation
from holdfast.store.verbs.job_changes import DECISIONS, recorded, to_cancelled, to_ready

T = TypeVar("T")


def not_found(job_id: str) -> JobNotFound:
    """Return the error for an id that is not in the store."""
    return JobNotFound(f"no job has the id {job_id}: it never existed, or it was pruned after its retention")


def _by_id(rows: JobRows, job_id: str, decide: Callable[[JobRow, int], tuple[T, Change | None]]) -> Steps[T]:
    """Decide on one job, in any state; decide again if its row changed meanwhile. Raises `JobNotFound`."""
    for _ in range(DECISIONS):
        found = yield from rows.lock(ById(job_id))
        if not found.rows:
            raise not_found(job_id)
        answer, change = decide(found.rows[0], found.now)
        if change is None or not (yield from rows.write(found.now, [change])):
            return answer
    raise StoreUnavailable(f"job {job_id} changes faster than it can be read: try again")


def cancel(rows: JobRows, job_id: str, reason: str) -> Steps[Cancellation]:
    """Cancel a waiting job; request it for a running job; return TOO_LATE for an ended job."""

    def decide(row: JobRow, now: int) -> tuple[Cancellation, Change | None]:
        if row.state in ENDED:
            return Cancellation.TOO_LATE, None
        if row.state is JobState.RUNNING:
            return Cancellation.ASKED, Change(row, row._replace(cancel_asked=True, cancel_reason=reason))
        return Cancellation.CANCELLED, to_cancelled(row, now, reason, None)

    return (yield from _by_id(rows, job_id, decide))


def retry(rows: JobRows, job_id: str) -> Steps[bool]:
    """Make a failed or cancelled job due now, with a fresh budget; at the end of its order key, if it has one."""

    def decide(row: JobRow, now: int) -> tuple[bool, Change | None]:
        if row.state not in {JobState.FAILED, JobState.CANCELLED}:
            return False, None
        counters = after_retry(Counters(attempt=row.attempt, lost=row.lost))
        new = row._replace(
            state=JobState.READY if row.order_key is None else JobState.BLOCKED,
            turn=turn_of(now, row.priority),
            attempt=counters.attempt,
            excused=counters.excused,
            interrupted=counters.interrupted,
            lost=counters.lost,
            keyed=False,
        )
        return True, Change(row, new)

    return (yield from _by_id(rows, job_id, decide))


def reset(rows: JobRows, job_id: str) -> Steps[bool]:
    """Revoke a running job's lease: its fence is stale from now on, and the attempt is excused."""

    def decide(row: JobRow, now: int) -> tuple[bool, Change | None]:
        if row.state is not JobState.RUNNING:
            return False, None
        record = recorded(row, now, "released", Failure("Reset", "an operator took the lease away"), by_holder=False)
        return True, to_ready(row, now, after_return(row.counters), record)

    return (yield from _by_id(rows, job_id, decide))
