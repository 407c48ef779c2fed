"""Takes leases from workers that are dead or silent, and releases jobs.

Expiry is judged by the step that locks the row: a lease that was just extended is not expired, and a lease that is
taken is stale for its holder from this commit on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.model.budget import after_interruption, after_loss, after_return, was_alone
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.model.lease_rules import LATE_PARTS, longest_covered
from holdfast.model.outcome import Failure
from holdfast.store.job_lists import AnyExpired
from holdfast.store.job_rows import Change, Expired, JobRow, JobRows, OfWorker
from holdfast.store.steps import Steps
from holdfast.store.values import Rescued, Verdict
from holdfast.store.verbs.job_changes import recorded, to_failed, to_ready, under_leases


def lose(row: JobRow, now: int, failure: Failure, *, alone: bool, by_holder: bool) -> Change:
    """Apply the lost-worker rule to one running job."""
    record = recorded(row, now, "lost", failure, by_holder=by_holder)
    decision = after_loss(row.counters, max_attempts=row.max_attempts, alone=alone)
    if decision.failed_because is not None and not row.cancel_asked:
        return to_failed(row, now, decision.failed_because, record, ("lost",), counters=decision.counters)
    return to_ready(row, now, decision.counters, record, ("lost",))


class ExpiredLook(NamedTuple):
    """Whether there is a lease to take, and the caller's access to the store as far as it counts."""

    found: bool
    access: timedelta | None


def look_for_expired(rows: JobRows, unbroken: timedelta | None) -> Steps[ExpiredLook]:
    """Look for a lease to take; reads only. Every look compares the clocks: a step is seen by the next one."""
    sent = time.monotonic()
    (seen,) = yield from rows.page(AnyExpired, "any_expired", longest=longest_covered(unbroken))
    return ExpiredLook(bool(seen.found), _counted(rows, unbroken, seen.now_us, sent))


def _counted(rows: JobRows, unbroken: timedelta | None, now: int, sent: float) -> timedelta | None:
    """Return the access to the store that counts: after a step of its clock, workers get the time to extend first."""
    if unbroken is None or rows.steady is None:
        return unbroken
    return rows.steady.limited(unbroken, now, sent, time.monotonic())


def rescue(rows: JobRows, unbroken: timedelta | None, limit: int, *, asked_at: float) -> Steps[list[Rescued]]:
    """Take expired leases. `asked_at`, by the monotonic clock, is when the call began: a slow call takes none.

    While the call waited for a lock or for the network, workers may have been unable to extend their leases too.
    """
    if not (yield from look_for_expired(rows, unbroken)).found:
        return []
    found = yield from rows.lock(Expired(unbroken, limit))
    if not found.rows:
        return []
    waited = span_micros(timedelta(seconds=time.monotonic() - asked_at))
    longest = longest_covered(_counted(rows, unbroken, found.now, asked_at))
    taken = [row for row in found.rows if longest is None or LATE_PARTS * waited <= (row.lease_span or 0) <= longest]
    return (yield from _take(rows, found.now, taken, "its lease expired", unextended=True))


def rescue_worker(rows: JobRows, worker_id: str, reason: str, limit: int) -> Steps[list[Rescued]]:
    """Take at most `limit` leases of a dead worker; forget the worker when none is left."""
    found = yield from rows.lock(OfWorker(worker_id, limit))
    rescued = yield from _take(rows, found.now, found.rows, reason)
    if len(found.rows) < limit:
        yield from rows.act("forget_worker", worker_id=worker_id)
    return rescued


def _take(
    rows: JobRows, now: int, taken: Sequence[JobRow], reason: str, *, unextended: bool = False
) -> Steps[list[Rescued]]:
    changes: list[Change] = []
    for row in taken:
        failure = Failure("WorkerLost", f"worker {row.worker_id} was lost: {reason}")
        alone = was_alone(isolated=row.isolated, held=row.held)
        lost = lose(row, now, failure, alone=alone, by_holder=False)
        changes.append(lost._replace(unextended=unextended, clears_isolation=True))
    reachable = yield from rows.reachable(changes)
    if not reachable:
        return []
    refused = {change.old.seq for change in (yield from rows.write(now, reachable))}
    return [
        Rescued(old.id, old.task, old.queue, old.worker_id or "", old.attempt, new.state)
        for old, new, *_ in reachable
        if old.seq not in refused
    ]


def release(rows: JobRows, leases: Sequence[Lease], *, started: bool) -> Steps[list[Verdict]]:
    """Make jobs ready again: as interrupted if their handlers had started, else as if they had not been claimed."""
    decide = _interrupted if started else _unstarted
    held = yield from under_leases(rows, leases, decide)
    answers: list[Verdict] = []
    for lease in leases:
        key = (lease.seq, lease.fence)
        answers.append(Verdict.DONE if key in held else Verdict.LOST)
        held.discard(key)
    return answers


def _unstarted(row: JobRow, now: int) -> Change:
    return to_ready(row, now, after_return(row.counters), recorded(row, now, "released", None))


def _interrupted(row: JobRow, now: int) -> Change:
    failure = Failure("Interrupted", "the worker was stopped while the job ran")
    record = recorded(row, now, "released", failure)
    decision = after_interruption(row.counters, max_attempts=row.max_attempts)
    if decision.failed_because is not None and not row.cancel_asked:
        return to_failed(row, now, decision.failed_because, record)
    return to_ready(row, now, decision.counters, record)
