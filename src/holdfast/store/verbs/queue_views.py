"""Views of queues, workers and counts for operators, and the jobs left for a worker that stops when there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.model.instants import MICROSECOND, span_micros, to_datetime
from holdfast.model.limits import LimitKey
from holdfast.store.job_lists import (
    CountedTask,
    ListedCount,
    ListedQueue,
    ListedTask,
    ListedWorker,
    OutstandingJobs,
    QueueDepth,
)
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Count, Outstanding, QueueView, TaskView, WaitingTask, WorkerHeartbeat, WorkerView
from holdfast.store.verbs.limits import limits

_ALL = 2**62  # rows: more than any store has
_SAMPLED = ("scheduled", "blocked", "failed")  # counted among the first so many of all queues
_decode_heartbeat = msgspec.json.Decoder(WorkerHeartbeat).decode
_decode_tasks = msgspec.json.Decoder(tuple[str, ...]).decode


def queues(rows: JobRows, most: int | None = None) -> Steps[list[QueueView]]:
    """List all queues with their counts, each up to about `most`."""
    known = {use.key: use.limit for use in (yield from limits(rows))}
    limit = _ALL if most is None else most
    found = yield from rows.page(ListedQueue, "queues", most=limit)
    cut = _cut(found, limit)
    return [
        QueueView(
            name=row.queue,
            **_counted(row),
            at_least=("ready", *cut) if row.is_cut else cut,
            limit=known.get(LimitKey("queue", row.queue)),
        )
        for row in found
    ]


def _cut(found: Sequence[ListedQueue] | Sequence[CountedTask], limit: int) -> tuple[str, ...]:
    """Return the states of which only the first `limit` jobs were counted, over all rows."""
    return tuple(state for state in _SAMPLED if sum(getattr(row, state) for row in found) >= limit)


def tasks(rows: JobRows, most: int | None = None) -> Steps[list[TaskView]]:
    """List all tasks with their counts over all queues, each up to about `most`."""
    known = {use.key: use.limit for use in (yield from limits(rows))}
    limit = _ALL if most is None else most
    found = yield from rows.page(CountedTask, "tasks", most=limit)
    cut = _cut(found, limit)
    return [
        TaskView(
            name=row.task,
            **_counted(row),
            limit=known.get(LimitKey("task", row.task)),
            key_limit=known.get(LimitKey("key", row.task)),
            at_least=("ready", *cut) if row.is_cut else cut,
        )
        for row in found
    ]


def _counted(row: ListedQueue | CountedTask) -> dict[str, Any]:
    return {
        "paused": bool(row.paused),
        "ready": row.ready,
        "scheduled": row.scheduled,
        "blocked": row.blocked,
        "running": row.running,
        "failed": row.failed,
        "oldest_ready": None if row.due is None else timedelta(microseconds=max(0, row.due)),
    }


def depth(rows: JobRows, queue: str) -> Steps[int]:
    """Count the ready jobs of one queue."""
    ((number,),) = yield from rows.page(QueueDepth, "depth", queue=queue)
    return number


def workers(rows: JobRows) -> Steps[list[WorkerView]]:
    """List the workers that have sent a heartbeat and were not forgotten."""
    return [
        WorkerView(_heartbeat(row), to_datetime(row.started_at), row.silent * MICROSECOND, row.running)
        for row in (yield from rows.page(ListedWorker, "workers"))
    ]


def _heartbeat(row: ListedWorker) -> WorkerHeartbeat:
    heartbeat = _decode_heartbeat(row.heartbeat)
    return heartbeat if row.tasks is None else msgspec.structs.replace(heartbeat, tasks=_decode_tasks(row.tasks))


def waiting_tasks(rows: JobRows) -> Steps[list[WaitingTask]]:
    """List the tasks that have ready jobs, per queue."""
    found = yield from rows.page(ListedTask, "waiting_tasks")
    return [WaitingTask(row.queue, row.task, bool(row.paused)) for row in found]


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
        rescued=row.lost,
        run_time=row.run_time * MICROSECOND,
    )


def outstanding(rows: JobRows, tasks: Sequence[str], served: Sequence[str] | None) -> Steps[Outstanding]:
    """Count the jobs that are left."""
    known = set(tasks)
    counted: Counter[str] = Counter()
    for row in (yield from rows.page(OutstandingJobs, "outstanding")):
        if row.state == "undecided":
            counted["blocked"] += row.number
            continue
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
