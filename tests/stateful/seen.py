"""What is compared of the store and the reference model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model.job import JobState, LeasedJob
from holdfast.store.values import QueueView, TaskView


def told(job: LeasedJob) -> tuple[Any, ...]:
    """Return what a claim tells of a job, but for seq and fence."""
    return (
        job.id,
        job.queue,
        job.task,
        job.priority,
        job.max_attempts,
        job.turn,
        job.enqueued_at,
        job.attempt,
        job.excused,
        job.interrupted,
        job.lost,
        job.order_key,
    )


def seen(details: Any) -> tuple[Any, ...]:
    """Return what is compared of a job after every step."""
    job, lease = details.job, details.lease
    held = lease and (
        lease.worker_id,
        lease.expires_in,
        lease.isolated,
        lease.cancel_asked,
        lease.percent,
        lease.note,
        lease.started_at,
    )
    waits = job.state in {JobState.READY, JobState.SCHEDULED, JobState.BLOCKED}
    due = job.run_at if waits else None
    stands = (job.id, job.state, job.order_key, job.attempt, due, job.finished_at)
    return (*stands, details.payload, details.unique_key, details.result, held, len(details.attempts))


def counted(view: QueueView) -> tuple[Any, ...]:
    """Return a queue's counts."""
    return (view.name, view.paused, view.ready, view.scheduled, view.blocked, view.running, view.failed)


def in_use(tasks: Sequence[TaskView]) -> list[TaskView]:
    """Leave out tasks of which a store only knows the name: from an enqueue, say, of an id that it has already."""
    return [view for view in tasks if any(msgspec.structs.astuple(view)[1:])]
