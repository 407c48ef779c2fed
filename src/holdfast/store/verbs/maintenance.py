"""Promotes due jobs, prunes jobs past their retention, and runs the steps of leases and workers that need no rule."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease
from holdfast.model.lease_rules import FORGET_WORKER_AFTER
from holdfast.store.job_lists import NextDue
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Promotion, Retention, Verdict, WorkerHeartbeat

_encode = msgspec.json.encode


def next_due(rows: JobRows) -> Steps[tuple[timedelta | None, bool]]:
    """Return how long until the next scheduled job is due, and whether children are to be decided."""
    ((wait, parents_changed),) = yield from rows.page(NextDue, "next_due")
    return None if wait is None else timedelta(microseconds=wait), bool(parents_changed)


def promote(rows: JobRows, limit: int) -> Steps[Promotion]:
    """Move due jobs to ready, the longest due first."""
    moved = yield from rows.promote(limit)
    wait, _ = yield from next_due(rows)
    return Promotion(moved, wait)


def prune(rows: JobRows, retention: Retention, limit: int) -> Steps[int]:
    """Delete at most `limit` finished jobs with their records, the oldest first; return how many."""
    pruned = 0
    for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED):
        keep: timedelta | None = getattr(retention, state)
        if keep is not None and pruned < limit:
            pruned += yield from rows.prune(state, keep, limit - pruned)
    yield from rows.prune_keys(limit)
    yield from rows.prune_records(counts=retention.counts, workers=FORGET_WORKER_AFTER)
    return pruned


def extend(rows: JobRows, lease: Lease, duration: timedelta) -> Steps[Verdict]:
    """Extend one lease."""
    return _verdict((yield from rows.act("extend_one", seq=lease.seq, fence=lease.fence, span=span_micros(duration))))


def progress(rows: JobRows, lease: Lease, percent: float | None, note: str | None) -> Steps[Verdict]:
    """Record the progress of an attempt."""
    return _verdict((yield from rows.act("set_progress", seq=lease.seq, fence=lease.fence, percent=percent, note=note)))


def heartbeat(rows: JobRows, worker: WorkerHeartbeat) -> Steps[None]:
    """Record that a worker is alive; its tasks are stored apart, with its first heartbeat."""
    tasks = None if worker.tasks is None else _encode(worker.tasks).decode()
    text = _encode(msgspec.structs.replace(worker, tasks=None)).decode()
    yield from rows.act("worker_heartbeat", worker_id=worker.worker_id, heartbeat=text, tasks=tasks)


def _verdict(changed: bool) -> Verdict:
    return Verdict.DONE if changed else Verdict.LOST
