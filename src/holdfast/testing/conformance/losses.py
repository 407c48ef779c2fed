"""Losses: which job is blamed when a worker is lost with all jobs that it held."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.budget import MAX_INTERRUPTED
from holdfast.model.job import JobState, LeasedJob
from holdfast.store.backend import Backend
from holdfast.store.values import Rescued
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    lease_of,
    state_of,
)


async def _lost_before(backend: Backend, number: int = 1) -> list[str]:
    """Create jobs that were lost once together with others, and so must run isolated."""
    ids = await enqueue(backend, *(a_job() for _ in range(number)))
    await claim(backend, worker_id="worker-y")
    await backend.jobs.rescue_worker("worker-y", "killed", MANY)
    return ids


class TestBlame(Conformance):
    """`JobStore.rescue` and `rescue_worker`, by `model.budget.after_loss`."""

    @pytest.fixture(params=["expired", "known to be dead"])
    def how(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    async def _lose_worker(self, backend: Backend, clock: ManualClock, how: str, limit: int = MANY) -> list[Rescued]:
        """Lose worker-z with all leases that it holds."""
        if how == "expired":
            clock.advance(LEASE * 2)
            return await backend.jobs.rescue(None, limit)
        return await backend.jobs.rescue_worker("worker-z", "killed", limit)

    async def _next(self, backend: Backend, job_id: str) -> LeasedJob:
        """Claim all ready jobs; return the one with this id."""
        (job,) = [job for job in await claim(backend, worker_id="worker-n") if job.id == job_id]
        return job

    async def test_an_isolated_job_lost_together_with_another_is_excused_and_stays_isolated(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        """If only the job's own child had died, the live worker would have reported it."""
        (isolated,) = await _lost_before(backend)
        for attempt in range(2, 6):  # more often than a job may be lost through its own fault
            (held,) = await claim(backend, worker_id="worker-z")
            assert (held.id, held.attempt, held.used_attempts, held.lost) == (isolated, attempt, 1, 1)
            assert (await lease_of(backend, isolated)).isolated
            fresh = await hold_one(backend, worker_id="worker-z")
            assert {each.state for each in await self._lose_worker(backend, clock, how)} == {JobState.READY}
            await backend.jobs.cancel(fresh.id, "not wanted")
        assert await state_of(backend, isolated) is JobState.READY

    async def test_of_several_isolated_jobs_of_one_worker_none_is_blamed(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        ids = await _lost_before(backend, 2)
        assert len(await claim(backend, worker_id="worker-z")) == 2
        await self._lose_worker(backend, clock, how)
        again = await claim(backend)
        assert {(job.id, job.used_attempts, job.lost) for job in again} == {(job_id, 1, 1) for job_id in ids}

    async def test_an_isolated_job_lost_alone_is_blamed(self, backend: Backend, clock: ManualClock, how: str) -> None:
        (isolated,) = await _lost_before(backend)
        await claim_one(backend, worker_id="worker-z")
        await hold_one(backend, worker_id="worker-a", lease=timedelta(hours=1))  # not a neighbour
        await self._lose_worker(backend, clock, how)
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (2, 2)

    async def test_a_neighbour_rescued_by_an_earlier_call_counts(self, backend: Backend, clock: ManualClock) -> None:
        (isolated,) = await _lost_before(backend)
        await claim_one(backend, worker_id="worker-z", lease=LEASE * 3)
        fresh = await hold_one(backend, worker_id="worker-z")
        for expected in (fresh.id, isolated):
            clock.advance(LEASE * 2)
            assert [each.job_id for each in await backend.jobs.rescue(None, MANY)] == [expected]
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (1, 1)

    async def test_a_neighbour_rescued_by_a_later_call_counts(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        ids = await _lost_before(backend, 3)
        assert len(await claim(backend, worker_id="worker-z")) == 3
        taken = [await self._lose_worker(backend, clock, how, limit=1) for _ in ids]
        assert [len(each) for each in taken] == [1, 1, 1]
        again = await claim(backend)
        assert {(job.id, job.used_attempts, job.lost) for job in again} == {(job_id, 1, 1) for job_id in ids}

    async def test_a_loss_that_a_live_worker_reports_of_its_child_is_blamed_despite_neighbours(
        self, backend: Backend
    ) -> None:
        (isolated,) = await _lost_before(backend)
        job = await claim_one(backend, worker_id="worker-z")
        await hold_one(backend, worker_id="worker-z")
        await finish(backend, job.lease, OUTCOMES["lost"])
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (2, 2)

    async def test_a_job_lost_together_with_others_too_often_is_failed(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        """This bounds a job that kills its worker from inside a child process."""
        (killer,) = await enqueue(backend, a_job("killer", max_attempts=2))
        states: list[JobState] = []
        while JobState.FAILED not in states:
            assert len(await claim(backend, worker_id="worker-z", queues=["killer"])) == 1
            neighbour = await hold_one(backend, worker_id="worker-z")
            states += [each.state for each in await self._lose_worker(backend, clock, how) if each.job_id == killer]
            await backend.jobs.cancel(neighbour.id, "not wanted")
        assert len(states) == MAX_INTERRUPTED + 2
        assert "worker lost too often" in str((await backend.insight.job(killer)).job.reason)
