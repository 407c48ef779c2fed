"""Enqueue: ids, order, due times, and the round trip of every field."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import JobNotFound
from holdfast.model.ids import new_id, new_ids
from holdfast.model.job import JobState, NewJob
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import Conformance, a_job, bring_to, claim, enqueue, snapshot, state_of


class TestEnqueue(Conformance):
    """`JobStore.enqueue`."""

    @pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.BLOCKED])
    async def test_a_job_whose_id_is_already_known_in_any_state_is_left_as_it_is_and_answered_with_false(
        self, backend: Backend, state: JobState
    ) -> None:
        job_id, _ = await bring_to(backend, state)
        before = await snapshot(backend, job_id)
        repeat = a_job("another", task="other", payload='{"n": 2}', job_id=job_id)
        assert await backend.jobs.enqueue([repeat]) == [False]
        assert await snapshot(backend, job_id) == before

    async def test_known_and_new_jobs_in_one_call_are_answered_one_by_one(self, backend: Backend) -> None:
        known, new = a_job(), a_job()
        await enqueue(backend, known)
        assert await backend.jobs.enqueue([new, known]) == [True, False]
        assert {job.id for job in await claim(backend)} == {known.id, new.id}

    async def test_an_id_given_twice_in_one_call_makes_one_job(self, backend: Backend) -> None:
        job = a_job()
        assert await backend.jobs.enqueue([job, job]) == [True, False]
        assert [leased.id for leased in await claim(backend)] == [job.id]

    async def test_an_empty_call_enqueues_nothing(self, backend: Backend) -> None:
        assert await backend.jobs.enqueue([]) == []
        assert await claim(backend) == []

    async def test_a_job_with_neither_delay_nor_run_at_is_ready(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job())
        assert await state_of(backend, job_id) is JobState.READY

    @pytest.mark.parametrize("seconds", [-60, 0])
    async def test_a_job_with_a_delay_or_run_at_in_the_past_is_ready(
        self, backend: Backend, clock: ManualClock, seconds: int
    ) -> None:
        span = timedelta(seconds=seconds)
        ids = await enqueue(backend, a_job(delay=span), a_job(run_at=clock.now + span))
        assert [await state_of(backend, job_id) for job_id in ids] == [JobState.READY, JobState.READY]

    async def test_a_job_with_a_delay_or_run_at_in_the_future_is_scheduled(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        span = timedelta(seconds=1)
        ids = await enqueue(backend, a_job(delay=span), a_job(run_at=clock.now + span))
        assert [await state_of(backend, job_id) for job_id in ids] == [JobState.SCHEDULED, JobState.SCHEDULED]
        assert await claim(backend) == []

    async def test_jobs_are_given_a_growing_seq_in_the_order_of_the_call(self, backend: Backend) -> None:
        ids = new_ids(3)
        shuffled = [ids[2], ids[0], ids[1]]
        await enqueue(backend, *(a_job(job_id=job_id) for job_id in shuffled))
        (last,) = await enqueue(backend, a_job())
        leased = {job.id: job.seq for job in await claim(backend)}
        assert sorted(leased, key=lambda job_id: leased[job_id]) == [*shuffled, last]
        assert len(set(leased.values())) == 4

    async def test_every_field_round_trips(self, backend: Backend, clock: ManualClock) -> None:
        job = NewJob(
            id=new_id(),
            queue="orders",
            task="shop.charge",
            payload='{"args":["ä 🙂 \\" \\u0000"],"kwargs":{"n":1.5}}',
            headers={"traceparent": "00-ab", "note": "it's ünï;cødé\n"},
            priority=-7,
            max_attempts=3,
            timeout=2.5,
        )
        await enqueue(backend, job)
        (leased,) = await claim(backend, tasks=["shop.charge"])
        got = (leased.id, leased.queue, leased.task, leased.payload, leased.headers, leased.priority)
        assert got == (job.id, job.queue, job.task, job.payload, job.headers, job.priority)
        assert (leased.max_attempts, leased.timeout) == (job.max_attempts, job.timeout)
        assert (leased.attempt, leased.excused, leased.interrupted, leased.lost) == (1, 0, 0, 0)
        assert leased.enqueued_at == clock.now

    async def test_names_are_data_whatever_they_look_like(self, backend: Backend) -> None:
        queue = "x'); drop table holdfast_job; --"
        job = a_job(queue, task='greet" or 1=1')
        await enqueue(backend, job)
        assert await claim(backend) == []
        (leased,) = await claim(backend, tasks=[job.task], queues=[queue])
        assert (leased.queue, leased.task) == (queue, job.task)

    async def test_a_large_batch_is_enqueued_in_one_call(self, backend: Backend) -> None:
        jobs = [a_job() for _ in range(2500)]
        assert await backend.jobs.enqueue(jobs) == [True] * 2500
        claimed = [job.id for _ in range(3) for job in await claim(backend)]
        assert claimed == [job.id for job in jobs]

    async def test_jobs_are_enqueued_all_or_none(self, backend: Backend) -> None:
        good, bad = a_job(), a_job(payload="\ud800")  # a lone surrogate: no store can encode it
        with pytest.raises(Exception):  # noqa: B017, PT011 - the driver decides which error it raises
            await backend.jobs.enqueue([good, bad])
        with pytest.raises(JobNotFound):
            await backend.insight.job(good.id)
