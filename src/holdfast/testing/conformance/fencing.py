"""Fencing: a write under a stale fence changes nothing, however the lease was lost."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast.model.job import Lease, LeasedJob
from holdfast.store.backend import Backend
from holdfast.store.values import Standing, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    claim_one,
    finish,
    hold_one,
    in_extender,
    snapshot,
)

Zombie = Callable[[Backend, ManualClock], Awaitable[LeasedJob]]


async def _released(backend: Backend, _: ManualClock) -> LeasedJob:
    job = await hold_one(backend)
    await backend.jobs.release([job.lease], started=True)
    return job


async def _rescued(backend: Backend, clock: ManualClock) -> LeasedJob:
    job = await hold_one(backend)
    clock.advance(LEASE * 2)
    assert len(await backend.jobs.rescue(None, MANY)) == 1
    return job


async def _worker_rescued(backend: Backend, _: ManualClock) -> LeasedJob:
    job = await hold_one(backend, worker_id="worker-z")
    assert len(await backend.jobs.rescue_worker("worker-z", "killed", MANY)) == 1
    return job


async def _reset(backend: Backend, _: ManualClock) -> LeasedJob:
    job = await hold_one(backend)
    assert await backend.jobs.reset(job.id)
    return job


async def _reset_and_claimed_again(backend: Backend, clock: ManualClock) -> LeasedJob:
    job = await _reset(backend, clock)
    assert (await claim_one(backend, worker_id="worker-b")).id == job.id
    return job


async def _reset_and_claimed_again_by_the_same_worker(backend: Backend, clock: ManualClock) -> LeasedJob:
    job = await _reset(backend, clock)
    assert (await claim_one(backend)).id == job.id
    return job


async def _completed_by_another(backend: Backend, clock: ManualClock) -> LeasedJob:
    job = await _reset(backend, clock)
    again = await claim_one(backend, worker_id="worker-b")
    assert await finish(backend, again.lease, OUTCOMES["completed"]) is Verdict.DONE
    return job


async def _failed_by_another(backend: Backend, clock: ManualClock) -> LeasedJob:
    job = await _reset(backend, clock)
    again = await claim_one(backend, worker_id="worker-b")
    assert await finish(backend, again.lease, OUTCOMES["failed"]) is Verdict.DONE
    return job


ZOMBIES = [
    _released,
    _rescued,
    _worker_rescued,
    _reset,
    _reset_and_claimed_again,
    _reset_and_claimed_again_by_the_same_worker,
    _completed_by_another,
    _failed_by_another,
]
every_zombie = pytest.mark.parametrize("zombie", ZOMBIES, ids=lambda zombie: zombie.__name__.strip("_"))


class TestStaleHandles(Conformance):
    """Every write under a lease, for every way in which the lease can be lost."""

    @every_zombie
    @pytest.mark.parametrize("outcome", OUTCOMES)
    async def test_a_stale_fence_cannot_finish_a_job(
        self, backend: Backend, clock: ManualClock, zombie: Zombie, outcome: str
    ) -> None:
        job = await zombie(backend, clock)
        before = await snapshot(backend, job.id)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.LOST
        assert await snapshot(backend, job.id) == before

    @every_zombie
    async def test_a_stale_fence_cannot_release_extend_or_report(
        self, backend: Backend, clock: ManualClock, zombie: Zombie
    ) -> None:
        job = await zombie(backend, clock)
        before = await snapshot(backend, job.id)
        assert await backend.jobs.release([job.lease], started=False) == [Verdict.LOST]
        assert await backend.jobs.release([job.lease], started=True) == [Verdict.LOST]
        assert await backend.jobs.extend(job.lease, timedelta(hours=1)) is Verdict.LOST
        assert await backend.jobs.progress(job.lease, 99.0, "almost") is Verdict.LOST
        extension = await in_extender(backend, lambda extender: extender.extend([job.lease], timedelta(hours=1)))
        assert (extension.lost, extension.cancel_asked) == ([job.lease], [])
        assert await backend.jobs.verify(job.lease) is Standing.LOST
        assert await snapshot(backend, job.id) == before

    async def test_a_fence_from_the_future_is_as_stale_as_one_from_the_past(self, backend: Backend) -> None:
        job = await hold_one(backend)
        before = await snapshot(backend, job.id)
        forged = Lease(job_id=job.id, seq=job.seq, fence=job.fence + 1)
        assert await finish(backend, forged, OUTCOMES["completed"]) is Verdict.LOST
        assert await backend.jobs.extend(forged, LEASE * 9) is Verdict.LOST
        assert await backend.jobs.verify(forged) is Standing.LOST
        assert await snapshot(backend, job.id) == before

    async def test_the_fence_of_one_job_is_not_valid_for_another(self, backend: Backend) -> None:
        mine, other = await hold_one(backend), await hold_one(backend, worker_id="worker-b")
        before = await snapshot(backend, other.id)
        crossed = Lease(job_id=other.id, seq=other.seq, fence=mine.fence)
        assert await finish(backend, crossed, OUTCOMES["completed"]) is Verdict.LOST
        assert await snapshot(backend, other.id) == before

    async def test_after_an_operators_retry_the_fence_that_failed_the_job_cannot_write(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.retry(job.id)
        again = await claim_one(backend, worker_id="worker-b")
        assert again.fence > job.fence
        before = await snapshot(backend, job.id)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.release([job.lease], started=True) == [Verdict.LOST]
        assert await backend.jobs.extend(job.lease, LEASE * 9) is Verdict.LOST
        assert await snapshot(backend, job.id) == before
