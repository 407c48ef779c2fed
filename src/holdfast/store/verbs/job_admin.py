"""Operator actions on jobs: cancel, retry, run, reset, delete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.errors import JobNotFound, StoreUnavailable
from holdfast.model.budget import Counters, after_retry, after_return
from holdfast.model.instants import span_micros
from holdfast.model.job import JobState
from holdfast.model.outcome import Failure
from holdfast.model.turn import turn_of
from holdfast.store.job_lists import FamilyOf, NeededParent
from holdfast.store.job_rows import ENDED, ById, ByIds, Change, JobRow, JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Cancellation
from holdfast.store.verbs.job_changes import DECISIONS, recorded, to_cancelled, to_ready
from holdfast.store.verbs.unique import take_back

T = TypeVar("T")
_ANY_AGE = timedelta(0)  # not compared: after a step back of the clock, a job may have ended in the future


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
    return (yield from _by_id(rows, job_id, lambda row, now: _cancelled(row, now, reason)))


def cancel_all(rows: JobRows, job_ids: Sequence[str], reason: str) -> Steps[dict[str, Cancellation]]:
    """Do the same to each of these jobs."""
    answers: dict[str, Cancellation] = {}
    left = list(dict.fromkeys(job_ids))
    for _ in range(DECISIONS):
        found = yield from rows.lock(ByIds(left))
        decisions = {row.id: _cancelled(row, found.now, reason) for row in found.rows}
        changes = [change for _, change in decisions.values() if change is not None]
        left = [change.old.id for change in (yield from rows.write(found.now, changes))]
        answers |= {job_id: answer for job_id, (answer, _) in decisions.items() if job_id not in left}
        if not left:
            return answers
    raise StoreUnavailable("jobs changed repeatedly while they were cancelled: try again")


def _cancelled(row: JobRow, now: int, reason: str) -> tuple[Cancellation, Change | None]:
    if row.state in ENDED:
        return Cancellation.TOO_LATE, None
    if row.state is JobState.RUNNING:
        return Cancellation.ASKED, Change(row, row._replace(cancel_asked=True, cancel_reason=reason))
    return Cancellation.CANCELLED, to_cancelled(row, now, reason, None)


def delete(
    rows: JobRows, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
) -> Steps[dict[str, JobState | None]]:
    """Delete those of the jobs that ended in one of `states`, long enough ago; None is the answer for these."""
    answers: dict[str, JobState | None] = {}
    left = list(dict.fromkeys(job_ids))
    for _ in range(DECISIONS):
        found = yield from rows.lock(ByIds(left))
        latest = found.now - span_micros(older_than)
        going: list[JobRow] = []
        for row in found.rows:
            has_ended = row.state in ENDED and row.state in states
            if has_ended and (older_than <= _ANY_AGE or (row.finished_at or 0) <= latest):
                going.append(row)
            else:
                answers[row.id] = row.state
        refused = {row.seq: row for row in (yield from rows.delete(going))}
        answers |= {row.id: None for row in going if row.seq not in refused}
        if refused:  # some have children that have not ended, others have changed
            needed = yield from rows.page(NeededParent, "needed_parents", seqs=sorted(refused))
            kept = [refused.pop(seq) for (seq,) in needed if seq in refused]
            answers |= {row.id: row.state for row in kept}
        if not refused:
            return answers
        left = [row.id for row in refused.values()]
    raise StoreUnavailable("jobs changed repeatedly while they were deleted: try again")


def retry(rows: JobRows, job_id: str, ended_by: int | None = None) -> Steps[bool]:
    """Make a failed or cancelled job due now, with a fresh budget; at the end of its order key, if it has one.

    It takes its unique key back; raises `UniqueConflict` if another job holds that.

    If it has parents that have not ended, it waits for them. Parents that failed or were cancelled do not matter.
    """
    for _ in range(DECISIONS):
        found = yield from rows.lock(ById(job_id))
        if not found.rows:
            raise not_found(job_id)
        row = found.rows[0]
        if row.state not in {JobState.FAILED, JobState.CANCELLED}:
            return False
        if ended_by is not None and (row.finished_at or 0) > ended_by:
            return False
        # Read after the row was locked: the enqueue of a child locks its parents first.
        (family,) = yield from rows.page(FamilyOf, "family_of", seq=row.seq)
        conflicts = yield from take_back(rows, [row])
        if conflicts:
            raise conflicts[row.id]
        if not (yield from rows.write(found.now, [_retried(row, found.now, family)])):
            return True
    raise StoreUnavailable(f"job {job_id} changes faster than it can be read: try again")


def _retried(row: JobRow, now: int, family: FamilyOf) -> Change:
    counters = after_retry(Counters(attempt=row.attempt, lost=row.lost))
    waits = bool(family.unfinished)
    new = row._replace(
        state=JobState.BLOCKED if waits or row.order_key is not None else JobState.READY,
        turn=turn_of(now, row.priority),
        attempt=counters.attempt,
        excused=counters.excused,
        interrupted=counters.interrupted,
        lost=counters.lost,
        followed=bool(family.is_parent),
    )
    return Change(row, new, waits=waits, is_mended=bool(family.is_child))


def run(rows: JobRows, job_id: str) -> Steps[bool]:
    """Make a scheduled job due now, and ready."""

    def decide(row: JobRow, now: int) -> tuple[bool, Change | None]:
        if row.state is not JobState.SCHEDULED:
            return False, None
        new = row._replace(state=JobState.READY, turn=turn_of(now, row.priority), retrying=False)
        return True, Change(row, new)

    return (yield from _by_id(rows, job_id, decide))


def reset(rows: JobRows, job_id: str) -> Steps[bool]:
    """Revoke a running job's lease: its fence is stale from now on, and the attempt is excused."""

    def decide(row: JobRow, now: int) -> tuple[bool, Change | None]:
        if row.state is not JobState.RUNNING:
            return False, None
        record = recorded(row, now, "released", Failure("Reset", "an operator reset the lease"), by_holder=False)
        return True, to_ready(row, now, after_return(row.counters), record)

    return (yield from _by_id(rows, job_id, decide))
