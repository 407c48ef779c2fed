"""Time: the store's clock decides, to the microsecond."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta, timezone

from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    claim_one,
    enqueue,
    finish,
    hold_one,
    lease_of,
    state_of,
)

TICK = timedelta(microseconds=1)


class TestTime(Conformance):
    """Decisions that use the store's clock."""

    async def test_a_job_is_due_at_its_microsecond_and_not_before(self, backend: Backend, clock: ManualClock) -> None:
        await enqueue(backend, a_job(delay=timedelta(seconds=1)))
        clock.advance(timedelta(seconds=1) - TICK)
        promotion = await backend.jobs.promote(MANY)
        assert (promotion.moved, promotion.next_due) == (0, TICK)
        clock.advance(TICK)
        assert (await backend.jobs.promote(MANY)).moved == 1

    async def test_run_at_is_an_instant_in_whatever_zone_it_is_given(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        east = clock.now.astimezone(timezone(timedelta(hours=9))) + timedelta(seconds=5)
        (job_id,) = await enqueue(backend, a_job(run_at=east))
        clock.advance(4)
        assert (await backend.jobs.promote(MANY)).next_due == timedelta(seconds=1)
        clock.advance(1)
        await backend.jobs.promote(MANY)
        assert await state_of(backend, job_id) is JobState.READY

    async def test_a_lease_is_whole_until_its_last_microsecond(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend)
        clock.advance(LEASE - TICK)
        assert await backend.jobs.rescue(None, MANY) == []
        assert (await lease_of(backend, job.id)).expires_in == TICK
        clock.advance(TICK * 2)
        assert len(await backend.jobs.rescue(None, MANY)) == 1

    async def test_every_instant_that_is_kept_comes_from_the_stores_clock(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        enqueued = clock.now
        await enqueue(backend, a_job())
        clock.advance(TICK * 3)
        job = await claim_one(backend)
        started = clock.now
        assert job.enqueued_at == enqueued
        assert (await backend.insight.job(job.id)).job.started_at == started
        clock.advance(timedelta(days=300) + TICK)
        await finish(backend, job.lease, OUTCOMES["failed"])
        details = await backend.insight.job(job.id)
        assert details.job.finished_at == clock.now
        (record,) = details.attempts
        assert (record.started_at, record.ended_at) == (started, clock.now)

    async def test_a_clock_that_is_set_back_takes_no_lease_and_loses_no_job(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job = await hold_one(backend)
        clock.advance(timedelta(hours=-1))
        assert await backend.jobs.rescue(None, MANY) == []
        (later,) = await enqueue(backend, a_job())
        assert (await claim_one(backend)).id == later
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await state_of(backend, job.id) is JobState.COMPLETED
