"""Lists and details of the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.model.instants import MICROSECOND, span_micros, to_datetime
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.values import (
    Count,
    JobDetails,
    JobFilter,
    JobPage,
    JobView,
    LeaseView,
    QueueView,
    WorkerView,
)
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.records import ReferenceJob, ReferenceLease


def job_view(record: ReferenceJob) -> JobView:
    """Return the job as a list shows it."""
    new, active = record.new, record.lease
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
        used_attempts=None if record.state in FINAL_STATES else record.counters.attempt - record.counters.excused,
    )


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


def depth(model: Reference, queue: str) -> int:
    """Count the ready jobs of one queue."""
    return sum(record.state is JobState.READY for record in model.records.values() if record.new.queue == queue)


def _queue_view(model: Reference, name: str) -> QueueView:
    inside = [record for record in model.records.values() if record.new.queue == name]
    first = min((record for record in inside if record.state is JobState.READY), key=_place, default=None)

    def count(state: JobState) -> int:
        return sum(record.state is state for record in inside)

    return QueueView(
        name=name,
        paused=name in model.paused,
        ready=count(JobState.READY),
        scheduled=count(JobState.SCHEDULED),
        blocked=count(JobState.BLOCKED),
        running=count(JobState.RUNNING),
        failed=count(JobState.FAILED),
        oldest_ready=None if first is None else (model.now - first.run_us) * MICROSECOND,
    )


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
            lost=counter["lost"],
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
            numbers = ("enqueued", "completed", "retried", "failed", "cancelled", "lost", "run_time")
            added = {name: getattr(known, name) + getattr(count, name) for name in numbers}
            sums[count.queue, count.task] = msgspec.structs.replace(known, **added)
    return [sums[key] for key in sorted(sums)]
