"""Losses: whose fault it is when a worker is lost with all that it held."""

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
    """Put in jobs that were lost beside others once, and so are to run isolated."""
    ids = await enqueue(backend, *(a_job() for _ in range(number)))
    await claim(backend, worker_id="worker-y")
    await backend.jobs.rescue_worker("worker-y", "killed", MANY)
    return ids


class TestBlame(Conformance):
    """`JobStore.rescue` and `rescue_worker`, by `model.budget.after_loss`."""

    @pytest.fixture(params=["expired", "known to be dead"])
    def how(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    async def _bury(self, backend: Backend, clock: ManualClock, how: str, limit: int = MANY) -> list[Rescued]:
        """Let worker-z be lost with all that it holds."""
        if how == "expired":
            clock.advance(LEASE * 2)
            return await backend.jobs.rescue(None, limit)
        return await backend.jobs.rescue_worker("worker-z", "killed", limit)

    async def _next(self, backend: Backend, job_id: str) -> LeasedJob:
        """Claim all that is ready; return one of them."""
        (job,) = [job for job in await claim(backend, worker_id="worker-n") if job.id == job_id]
        return job

    async def test_an_isolated_job_whose_worker_held_another_besides_is_excused_and_stays_isolated(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        """Had its own child died, the living worker would have said so."""
        (isolated,) = await _lost_before(backend)
        for attempt in range(2, 6):  # more often than a job may be lost by its own fault
            (held,) = await claim(backend, worker_id="worker-z")
            assert (held.id, held.attempt, held.used_attempts, held.lost) == (isolated, attempt, 1, 1)
            assert (await lease_of(backend, isolated)).isolated
            fresh = await hold_one(backend, worker_id="worker-z")
            assert {each.state for each in await self._bury(backend, clock, how)} == {JobState.READY}
            await backend.jobs.cancel(fresh.id, "not wanted")
        assert await state_of(backend, isolated) is JobState.READY

    async def test_of_several_isolated_jobs_of_one_worker_none_is_blamed(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        ids = await _lost_before(backend, 2)
        assert len(await claim(backend, worker_id="worker-z")) == 2
        await self._bury(backend, clock, how)
        again = await claim(backend)
        assert {(job.id, job.used_attempts, job.lost) for job in again} == {(job_id, 1, 1) for job_id in ids}

    async def test_an_isolated_job_that_was_all_its_worker_held_is_blamed(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        (isolated,) = await _lost_before(backend)
        await claim_one(backend, worker_id="worker-z")
        await hold_one(backend, worker_id="worker-a", lease=timedelta(hours=1))  # another's jobs are no neighbours
        await self._bury(backend, clock, how)
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (2, 2)

    async def test_a_neighbour_whose_lease_was_taken_earlier_is_remembered(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (isolated,) = await _lost_before(backend)
        await claim_one(backend, worker_id="worker-z", lease=LEASE * 3)
        fresh = await hold_one(backend, worker_id="worker-z")
        for expected in (fresh.id, isolated):
            clock.advance(LEASE * 2)
            assert [each.job_id for each in await backend.jobs.rescue(None, MANY)] == [expected]
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (1, 1)

    async def test_a_neighbour_that_another_call_takes_later_is_seen(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        ids = await _lost_before(backend, 3)
        assert len(await claim(backend, worker_id="worker-z")) == 3
        taken = [await self._bury(backend, clock, how, limit=1) for _ in ids]
        assert [len(each) for each in taken] == [1, 1, 1]
        again = await claim(backend)
        assert {(job.id, job.used_attempts, job.lost) for job in again} == {(job_id, 1, 1) for job_id in ids}

    async def test_what_a_living_worker_says_of_a_child_of_its_own_is_blamed_whoever_is_beside_it(
        self, backend: Backend
    ) -> None:
        (isolated,) = await _lost_before(backend)
        job = await claim_one(backend, worker_id="worker-z")
        await hold_one(backend, worker_id="worker-z")
        await finish(backend, job.lease, OUTCOMES["lost"])
        again = await self._next(backend, isolated)
        assert (again.used_attempts, again.lost) == (2, 2)

    async def test_a_job_that_is_lost_beside_others_for_ever_is_failed_in_the_end(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        """So ends one that kills its worker from inside a child process."""
        (guilty,) = await enqueue(backend, a_job("guilty", max_attempts=2))
        states: list[JobState] = []
        while JobState.FAILED not in states:
            assert len(await claim(backend, worker_id="worker-z", queues=["guilty"])) == 1
            beside = await hold_one(backend, worker_id="worker-z")
            states += [each.state for each in await self._bury(backend, clock, how) if each.job_id == guilty]
            await backend.jobs.cancel(beside.id, "not wanted")
        assert len(states) == MAX_INTERRUPTED + 2
        assert "worker lost too often" in str((await backend.insight.job(guilty)).job.reason)
