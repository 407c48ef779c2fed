"""Views of queues, workers and counts for operators, and the jobs left for a worker that stops when there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.model.instants import MICROSECOND, span_micros, to_datetime
from holdfast.store.job_lists import ListedCount, ListedQueue, ListedWorker, OutstandingJobs, QueueDepth
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Count, Outstanding, QueueView, WorkerHeartbeat, WorkerView

_decode_heartbeat = msgspec.json.Decoder(WorkerHeartbeat).decode


def queues(rows: JobRows) -> Steps[list[QueueView]]:
    """List all queues with their counts."""
    return [
        QueueView(
            name=row.queue,
            paused=bool(row.paused),
            ready=row.ready,
            scheduled=row.scheduled,
            blocked=row.blocked,
            running=row.running,
            failed=row.failed,
            oldest_ready=None if row.due is None else timedelta(microseconds=max(0, row.due)),
        )
        for row in (yield from rows.page(ListedQueue, "queues"))
    ]


def depth(rows: JobRows, queue: str) -> Steps[int]:
    """Count the ready jobs of one queue."""
    ((number,),) = yield from rows.page(QueueDepth, "depth", queue=queue)
    return number


def workers(rows: JobRows) -> Steps[list[WorkerView]]:
    """List the workers that have sent a heartbeat and were not forgotten."""
    return [
        WorkerView(_decode_heartbeat(row.heartbeat), to_datetime(row.started_at), row.silent * MICROSECOND)
        for row in (yield from rows.page(ListedWorker, "workers"))
    ]


def counts(rows: JobRows, since: timedelta, *, by_minute: bool) -> Steps[list[Count]]:
    """Return the counts per minute, or their sums, for the last `since`."""
    statement = "counts" if by_minute else "count_sums"
    found = yield from rows.page(ListedCount, statement, since=span_micros(since))
    return [_count(row) for row in found]


def _count(row: ListedCount) -> Count:
    return Count(
        minute_at=to_datetime(row.minute_at),
        queue=row.queue,
        task=row.task,
        enqueued=row.enqueued,
        completed=row.completed,
        retried=row.retried,
        failed=row.failed,
        cancelled=row.cancelled,
        lost=row.lost,
        run_time=row.run_time * MICROSECOND,
    )


def outstanding(rows: JobRows, tasks: Sequence[str], served: Sequence[str] | None) -> Steps[Outstanding]:
    """Count the jobs that are left."""
    known = set(tasks)
    counted: Counter[str] = Counter()
    for row in (yield from rows.page(OutstandingJobs, "outstanding")):
        if served is not None and row.queue not in served:
            continue
        if row.paused:
            counted["paused"] += row.number
        elif row.state in {"ready", "retrying", "blocked"} and row.task not in known:
            counted["unknown"] += row.number
        else:
            counted["blocked" if row.state == "behind running" else row.state] += row.number
    names = ("ready", "retrying", "blocked", "running", "delayed", "paused", "unknown")
    return Outstanding(**{name: counted[name] for name in names})
