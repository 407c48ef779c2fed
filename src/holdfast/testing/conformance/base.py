"""Shared by all themes of the suite: fixtures, and helpers for common steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeVar

import pytest

from holdfast.model.ids import new_id
from holdfast.model.job import JobState, Lease, LeasedJob, NewJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed
from holdfast.store.backend import Backend
from holdfast.store.jobs import Extender
from holdfast.store.values import ClaimRequest, Finish, JobDetails, LeaseView, QueueView, Verdict
from holdfast.testing.clock import ManualClock

T = TypeVar("T")

LEASE = timedelta(seconds=30)
MANY = 1000
FAILURE = Failure(error_class="ValueError", message="no such order", traceback="Traceback …", signature="5e1f")

MakeBackend = Callable[[], Awaitable[Backend]]

OUTCOMES: dict[str, Outcome] = {
    "completed": Completed('"paid"'),
    "retried": Retried(timedelta(seconds=10), FAILURE),
    "snoozed": Snoozed(timedelta(seconds=10)),
    "failed": Failed(FAILURE),
    "cancelled": Cancelled("no longer wanted"),
    "lost": Lost(FAILURE),
}


class EffectTable(Protocol):
    """A table in the store for the effects of handlers. The binding provides it, because SQL and drivers differ."""

    async def create(self) -> None:
        """Create an empty table."""
        ...

    async def insert(self, connection: Any, job_id: str) -> None:
        """Write a job's effect through the connection of an async transaction."""
        ...

    def insert_blocking(self, connection: Any, job_id: str) -> None:
        """Write a job's effect through the connection of a blocking transaction, or through the caller's connection."""
        ...

    async def count(self, job_id: str) -> int:
        """Return the number of committed effects of a job."""
        ...

    def connect(self) -> AbstractContextManager[Any]:
        """Open a connection of the caller, inside a transaction; it has `commit()` and `rollback()`."""
        ...


class Conformance:
    """The base class of all themes."""

    needs: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture(autouse=True)
    def _skip_without_capabilities(self, backend: Backend) -> None:
        for need in sorted(self.needs):
            if not getattr(backend.capabilities, need):
                reasons = "; ".join(backend.capabilities.refusals.values())
                pytest.skip(f"{backend.capabilities.store} lacks {need}: {reasons}")


def a_job(  # noqa: PLR0913 - the fields of a job
    queue: str = "default",
    *,
    task: str = "greet",
    payload: str = "{}",
    priority: int = 0,
    max_attempts: int = 5,
    delay: timedelta | None = None,
    run_at: datetime | None = None,
    job_id: str | None = None,
    limit_key: str | None = None,
) -> NewJob:
    """Return a job to enqueue."""
    return NewJob(
        id=job_id or new_id(),
        queue=queue,
        task=task,
        payload=payload,
        priority=priority,
        max_attempts=max_attempts,
        delay=delay,
        run_at=run_at,
        limit_key=limit_key,
    )


async def enqueue(backend: Backend, *jobs: NewJob) -> list[str]:
    """Enqueue jobs that are all new; return their ids."""
    assert await backend.jobs.enqueue(jobs) == [True] * len(jobs)
    return [job.id for job in jobs]


async def claim(
    backend: Backend,
    limit: int = MANY,
    *,
    worker_id: str = "worker-a",
    tasks: Sequence[str] = ("greet",),
    queues: Sequence[str] | None = None,
    lease: timedelta = LEASE,
    isolates: bool = True,
) -> list[LeasedJob]:
    """Claim jobs; return them in the order of the claim."""
    request = ClaimRequest(
        worker_id=worker_id,
        tasks=tuple(tasks),
        limit=limit,
        lease=lease,
        queues=None if queues is None else tuple(queues),
        isolates=isolates,
    )
    return (await backend.jobs.claim(request)).jobs


async def claim_one(backend: Backend, *, worker_id: str = "worker-a", lease: timedelta = LEASE) -> LeasedJob:
    """Claim the next job; there must be one."""
    (job,) = await claim(backend, 1, worker_id=worker_id, lease=lease)
    return job


async def hold_one(
    backend: Backend, *, max_attempts: int = 5, worker_id: str = "worker-a", lease: timedelta = LEASE
) -> LeasedJob:
    """Enqueue a job and claim it."""
    (job_id,) = await enqueue(backend, a_job(max_attempts=max_attempts))
    job = await claim_one(backend, worker_id=worker_id, lease=lease)
    assert job.id == job_id
    return job


async def finish(backend: Backend, lease: Lease, outcome: Outcome) -> Verdict:
    """Finish one attempt; return the verdict."""
    (verdict,) = await backend.jobs.finish([Finish(lease=lease, outcome=outcome)])
    return verdict


async def state_of(backend: Backend, job_id: str) -> JobState:
    """Return the state of a job."""
    return (await backend.insight.job(job_id)).job.state


async def result_of(backend: Backend, job_id: str) -> str | None:
    """Return the stored result of a completed job."""
    return next((job.result for job in await backend.insight.states([job_id])), None)


async def lease_of(backend: Backend, job_id: str) -> LeaseView:
    """Return the active lease of a running job."""
    lease = (await backend.insight.job(job_id)).lease
    assert lease is not None
    return lease


async def queue_view(backend: Backend, name: str) -> QueueView:
    """Return the view of one queue."""
    (view,) = [view for view in await backend.insight.queues() if view.name == name]
    return view


async def snapshot(backend: Backend, *job_ids: str) -> list[JobDetails]:
    """Return all details of jobs, to compare before and after."""
    return [await backend.insight.job(job_id) for job_id in job_ids]


async def in_extender(backend: Backend, act: Callable[[Extender], T]) -> T:
    """Run `act` with an extender in another thread, as the lease keeper does."""

    def run() -> T:
        extender = backend.extender()
        try:
            return act(extender)
        finally:
            extender.close()

    return await asyncio.to_thread(run)


async def bring_to(backend: Backend, state: JobState) -> tuple[str, Lease]:
    """Create a job in `state`; return its id and its current or last lease."""
    job = await hold_one(backend)
    match state:
        case JobState.RUNNING:
            pass
        case JobState.READY:
            assert await backend.jobs.release([job.lease], started=False) == [Verdict.DONE]
        case JobState.SCHEDULED:
            assert await finish(backend, job.lease, OUTCOMES["snoozed"]) is Verdict.DONE
        case JobState.COMPLETED | JobState.FAILED | JobState.CANCELLED:
            assert await finish(backend, job.lease, OUTCOMES[state]) is Verdict.DONE
        case JobState.BLOCKED:
            pytest.fail("a blocked job needs other jobs: see order_keys")
    assert await state_of(backend, job.id) is state
    return job.id, job.lease


async def make_stale(backend: Backend, clock: ManualClock) -> LeasedJob:
    """Return a job whose lease expired, was rescued and went to another worker, so that its lease is stale."""
    job = await hold_one(backend)
    clock.advance(LEASE + timedelta(seconds=1))
    assert [rescued.job_id for rescued in await backend.jobs.rescue(None, MANY)] == [job.id]
    again = await claim_one(backend, worker_id="worker-b")
    assert again.id == job.id
    return job
