"""Lists and details of the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.model.instants import MICROSECOND, span_micros, to_datetime
from holdfast.model.job import JobState, parents_of
from holdfast.model.limits import LimitKey
from holdfast.store.job_lists import SeenJob
from holdfast.store.values import (
    Count,
    GraphJob,
    JobDetails,
    JobFilter,
    JobGraph,
    JobPage,
    JobView,
    LeaseView,
    QueueView,
    TaskView,
    WorkerView,
)
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.records import ReferenceJob, ReferenceLease

Counted = TypeVar("Counted", bound=QueueView | TaskView)
_SAMPLED = ("scheduled", "blocked", "failed")


def job_view(record: ReferenceJob) -> JobView:
    """Return the job as a list shows it."""
    new, active = record.new, record.lease or record.completed_under
    return JobView(
        id=new.id,
        seq=record.seq,
        queue=new.queue,
        task=new.task,
        state=record.state,
        priority=new.priority,
        attempt=record.counters.attempt,
        max_attempts=new.max_attempts,
        enqueued_at=to_datetime(record.enqueued_us),
        run_at=to_datetime(record.run_us),
        started_at=to_datetime(active.started_us) if active else None,
        finished_at=None if record.finished_us is None else to_datetime(record.finished_us),
        worker_id=active.worker_id if active else None,
        reason=record.reason,
        order_key=new.order_key,
        limit_key=new.limit_key,
        used_attempts=_used(record),
    )


def _used(record: ReferenceJob) -> int | None:
    counters = record.counters
    return None if record.state is JobState.COMPLETED else counters.attempt - counters.excused


def lease_view(record: ReferenceJob, active: ReferenceLease, now_us: int) -> LeaseView:
    """Return an active lease."""
    return LeaseView(
        job_id=record.new.id,
        seq=record.seq,
        fence=active.fence,
        queue=record.new.queue,
        task=record.new.task,
        worker_id=active.worker_id,
        attempt=record.counters.attempt,
        started_at=to_datetime(active.started_us),
        expires_in=(active.expires_us - now_us) * MICROSECOND,
        isolated=active.isolated,
        cancel_asked=record.cancel_reason is not None,
        percent=active.percent,
        note=active.note,
    )


def details(model: Reference, job_id: str) -> JobDetails:
    """Return all details of a job; raises `JobNotFound`."""
    record = model.require(job_id)
    return JobDetails(
        job=job_view(record),
        payload=record.new.payload,
        headers=record.new.headers or {},
        result=record.result,
        attempts=list(record.attempts),
        lease=lease_view(record, record.lease, model.now) if record.lease else None,
        timeout=record.new.timeout,
        unique_key=None if record.unique is None else record.unique.key,
        completed_fence=record.completed_by if record.state is JobState.COMPLETED else None,
    )


def parents(model: Reference, seq: int) -> list[SeenJob]:
    """Return the states and results of a job's parents."""
    (child,) = [record for record in model.records.values() if record.seq == seq]
    seen: list[SeenJob] = []
    for job_id in parents_of(child.new):
        record = model.records.get(job_id)
        if record is None:
            seen.append(SeenJob("", "deleted", None, None))
        else:
            state = record.state if record.is_final else "unfinished"
            seen.append(SeenJob(job_id, state, record.result, record.seq))
    return seen


def graph(model: Reference, job_id: str, limit: int) -> JobGraph:
    """Return the jobs that are connected with this one."""
    reached, edge = {job_id}, {model.require(job_id).new.id}
    links = [(child.new.id, each) for child in model.records.values() for each in parents_of(child.new)]
    while edge:
        edge = {one for link in links if edge & set(link) for one in link if one in model.records} - reached
        reached |= edge
    records = sorted((model.records[each] for each in reached), key=lambda record: record.seq)[:limit]
    return JobGraph(
        [
            GraphJob(
                id=record.new.id,
                seq=record.seq,
                queue=record.new.queue,
                task=record.new.task,
                state=record.state,
                parents=[each for each in parents_of(record.new) if each in reached],
            )
            for record in records
        ],
        is_cut=len(reached) > limit,
    )


def jobs(model: Reference, selection: JobFilter) -> JobPage:
    """List jobs in one state: waiting ones in the order in which they will run, others newest first."""
    found = [
        record
        for record in model.records.values()
        if record.state is selection.state
        and selection.queue in {None, record.new.queue}
        and selection.task in {None, record.new.task}
    ]
    found.sort(key=_place)
    first = int(selection.cursor or 0)
    last = first + selection.limit
    page = [job_view(record) for record in found[first:last]]
    return JobPage(jobs=page, cursor=str(last) if last < len(found) else None)


def _place(record: ReferenceJob) -> tuple[int, int]:
    match record.state:
        case JobState.READY:
            return (record.turn_us, record.seq)
        case JobState.SCHEDULED:
            return (record.run_us, record.seq)
        case JobState.BLOCKED:
            return (record.seq, 0)
        case _:
            return (-record.seq, 0)


def queues(model: Reference) -> list[QueueView]:
    """List all queues with their counts."""
    return [_queue_view(model, name) for name in sorted(model.queues)]


def counted_up_to(most: int, found: Sequence[Counted]) -> list[Counted]:
    """Return queues or tasks whose counts stop at `most`: those of ready jobs each, the others over all of them."""
    cut = [state for state in _SAMPLED if sum(getattr(view, state) for view in found) >= most]
    return [
        msgspec.structs.replace(
            view,
            **{state: min(getattr(view, state), most) for state in ("ready", *_SAMPLED)},
            at_least=("ready", *cut) if view.ready >= most else tuple(cut),
        )
        for view in found
    ]


def depth(model: Reference, queue: str) -> int:
    """Count the ready jobs of one queue."""
    return sum(record.state is JobState.READY for record in model.records.values() if record.new.queue == queue)


def tasks(model: Reference) -> list[TaskView]:
    """List all tasks with their counts over all queues."""
    by_task = {name: [each for each in model.records.values() if each.new.task == name] for name in model.known_tasks}
    return [
        TaskView(
            name=name,
            paused=name in model.paused_tasks,
            **_counted(model, inside),
            limit=model.limits.get(LimitKey("task", name)),
            key_limit=model.limits.get(LimitKey("key", name)),
        )
        for name, inside in sorted(by_task.items())
    ]


def _queue_view(model: Reference, name: str) -> QueueView:
    inside = [record for record in model.records.values() if record.new.queue == name]
    limit = model.limits.get(LimitKey("queue", name))
    return QueueView(name=name, paused=name in model.paused, **_counted(model, inside), limit=limit)


def _counted(model: Reference, inside: Sequence[ReferenceJob]) -> dict[str, Any]:
    first = min((record for record in inside if record.state is JobState.READY), key=_place, default=None)
    states = (JobState.READY, JobState.SCHEDULED, JobState.BLOCKED, JobState.RUNNING, JobState.FAILED)
    return {
        **{state: sum(record.state is state for record in inside) for state in states},
        "oldest_ready": None if first is None else (model.now - first.run_us) * MICROSECOND,
    }


def leases(model: Reference, limit: int, *, expired_only: bool) -> list[LeaseView]:
    """List active leases, the next to expire first."""
    views = [lease_view(record, active, model.now) for record, active in model.held()]
    return [view for view in views if not expired_only or view.expires_in <= timedelta(0)][:limit]


def workers(model: Reference) -> list[WorkerView]:
    """List the workers that sent a heartbeat and were not forgotten."""
    return [
        WorkerView(
            heartbeat=each.heartbeat,
            started_at=to_datetime(each.started_us),
            silent=(model.now - each.seen_us) * MICROSECOND,
            running=sum(lease.worker_id == each.heartbeat.worker_id for _, lease in model.held()),
        )
        for each in model.workers.values()
    ]


def counts(model: Reference, since: timedelta) -> list[Count]:
    """Return the counts per minute, queue and task since then."""
    first = model.now - span_micros(since)
    return [
        Count(
            minute_at=to_datetime(minute),
            queue=queue,
            task=task,
            enqueued=counter["enqueued"],
            completed=counter["completed"],
            retried=counter["retried"],
            failed=counter["failed"],
            cancelled=counter["cancelled"],
            rescued=counter["lost"],
            run_time=counter["run_us"] * MICROSECOND,
        )
        for (minute, queue, task), counter in sorted(model.counts.items())
        if minute + 60_000_000 > first
    ]


def summed(counts: Sequence[Count]) -> list[Count]:
    """Return the sums per queue and task, with the first minute of each."""
    sums: dict[tuple[str, str], Count] = {}
    for count in counts:
        known = sums.get((count.queue, count.task))
        if known is None:
            sums[count.queue, count.task] = count
        else:
            numbers = ("enqueued", "completed", "retried", "failed", "cancelled", "rescued", "run_time")
            added = {name: getattr(known, name) + getattr(count, name) for name in numbers}
            sums[count.queue, count.task] = msgspec.structs.replace(known, **added)
    return [sums[key] for key in sorted(sums)]
