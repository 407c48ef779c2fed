"""Time: the store's clock decides, to the microsecond."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta, timezone

import msgspec
import pytest

from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.store.backend import Backend
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

    @pytest.mark.parametrize("seconds", [-60, 60])
    async def test_a_clock_that_jumps_between_two_readings_of_one_verb_loses_no_job(
        self, backend: Backend, clock: ManualClock, seconds: int
    ) -> None:
        clock.after_reading = timedelta(seconds=seconds)
        second = timedelta(seconds=1)
        due = [a_job(), a_job(priority=3), a_job(delay=-second), a_job(delay=second), a_job(run_at=clock.now + second)]
        keyed = [msgspec.structs.replace(a_job(), order_key="customer-3") for _ in range(2)]
        limited = [a_job(limit_key="tenant-1"), a_job(limit_key="tenant-1", delay=second)]
        ids = await enqueue(backend, a_job(), a_job())
        for jobs in (due, due[3:], keyed, limited):
            ids += await enqueue(backend, *(msgspec.structs.replace(job, id=new_id()) for job in jobs))
        for job in await claim(backend):
            await finish(backend, job.lease, OUTCOMES["retried"])
        left = set(ids)
        for _ in range(5):
            clock.after_reading = timedelta()
            clock.advance(timedelta(hours=1))
            clock.after_reading = timedelta(seconds=seconds)
            await backend.jobs.promote(MANY)
            for job in await claim(backend):
                await finish(backend, job.lease, OUTCOMES["completed"])
                left.discard(job.id)
        assert left == set()
