"""The changes of a job's state that rules decide on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import StoreUnavailable
from holdfast.model.attempt_records import thinned
from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.model.turn import turn_of
from holdfast.store.job_rows import AttemptRecord, ByLeases, Change, JobRow, JobRows, Key
from holdfast.store.steps import Steps

DECISIONS = 50  # how often a decision is repeated because its row changed between `lock` and `write`


def recorded(row: JobRow, now: int, outcome: str, failure: Failure | None, *, by_holder: bool = True) -> AttemptRecord:
    """Return the record of a running job's attempt that ends now."""
    return AttemptRecord(
        attempt=row.attempt,
        fence=row.fence,
        by_holder=by_holder,
        worker_id=row.worker_id or "",
        started_at=row.started_at or 0,
        ended_at=now,
        outcome=outcome,
        failure=failure,
        thin=thinned(row.attempt),
    )


def to_ready(
    row: JobRow, now: int, counters: Counters, record: AttemptRecord | None, counts: tuple[str, ...] = ()
) -> Change:
    """Make the job ready again at its old turn; cancel it if a cancellation was requested."""
    if row.cancel_asked:
        return to_cancelled(row, now, row.cancel_reason or "", record, counts, counters=counters)
    return Change(row, _counted(row, counters, JobState.READY), record, counts)


def to_scheduled(
    row: JobRow, now: int, counters: Counters, run_at: int, record: AttemptRecord, counts: tuple[str, ...] = ()
) -> Change:
    """Schedule the job for an instant; cancel it if a cancellation was requested."""
    if row.cancel_asked:
        return to_cancelled(row, now, row.cancel_reason or "", record, counts, counters=counters)
    new = _counted(row, counters, JobState.SCHEDULED)
    new = new._replace(turn=turn_of(run_at, row.priority), retrying=True)
    return Change(row, new, record, counts)


def to_failed(
    row: JobRow,
    now: int,
    reason: str,
    record: AttemptRecord,
    counts: tuple[str, ...] = (),
    *,
    counters: Counters | None = None,
) -> Change:
    """Move the job to failed."""
    return Change(row, _ended(row, JobState.FAILED, now, reason, counters), record, (*counts, "failed"))


def to_cancelled(
    row: JobRow,
    now: int,
    reason: str,
    record: AttemptRecord | None,
    counts: tuple[str, ...] = (),
    *,
    counters: Counters | None = None,
) -> Change:
    """Move the job to cancelled."""
    return Change(row, _ended(row, JobState.CANCELLED, now, reason, counters), record, (*counts, "cancelled"))


def _counted(row: JobRow, counters: Counters, state: JobState) -> JobRow:
    return row._replace(
        state=state,
        attempt=counters.attempt,
        excused=counters.excused,
        interrupted=counters.interrupted,
        lost=counters.lost,
    )


def _ended(row: JobRow, state: JobState, now: int, reason: str, counters: Counters | None) -> JobRow:
    counted = row if counters is None else _counted(row, counters, state)
    return counted._replace(state=state, finished_at=now, reason=reason)


def under_leases(
    rows: JobRows, leases: Sequence[Lease], decide: Callable[[JobRow, int], Change], heads: Sequence[int] = ()
) -> Steps[set[Key]]:
    """Change every job that is held under its lease; return those leases, as (seq, fence).

    A job whose row changed meanwhile is read and decided again.
    """
    done: set[Key] = set()
    left = {(lease.seq, lease.fence): lease for lease in leases}
    for _ in range(DECISIONS):
        found = yield from rows.lock(ByLeases(list(left.values())))
        refused = yield from rows.write(found.now, [decide(row, found.now) for row in found.rows], heads)
        again = {(change.old.seq, change.old.fence) for change in refused}
        done |= {(row.seq, row.fence) for row in found.rows} - again
        if not again:
            return done
        left, heads = {key: left[key] for key in again}, ()
    raise StoreUnavailable("jobs changed repeatedly while their outcomes were written: try again")
