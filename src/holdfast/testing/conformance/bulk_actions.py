"""Operator actions: many jobs are cancelled or deleted, each as if alone; a job is run before its time."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.errors import JobNotFound
from holdfast.model.ids import new_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, Retention, Standing, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    bring_to,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    lease_of,
    result_of,
    snapshot,
    state_of,
)
from holdfast.testing.conformance.order_keys import keyed

NOW = timedelta(0)
ALIVE = [JobState.SCHEDULED, JobState.READY, JobState.RUNNING]


class TestCancelAll(Conformance):
    """`JobStore.cancel_all`."""

    async def test_each_job_is_cancelled_by_its_state_and_unknown_ids_are_missing(self, backend: Backend) -> None:
        done, _ = await bring_to(backend, JobState.COMPLETED)
        late, _ = await bring_to(backend, JobState.SCHEDULED)
        running = await hold_one(backend)
        (ready,) = await enqueue(backend, a_job())
        answers = await backend.jobs.cancel_all([ready, new_id(), running.id, late, done, ready], "not wanted")
        assert answers == {
            ready: Cancellation.CANCELLED,
            late: Cancellation.CANCELLED,
            running.id: Cancellation.ASKED,
            done: Cancellation.TOO_LATE,
        }
        assert (await backend.insight.job(ready)).job.reason == "not wanted"
        assert (await lease_of(backend, running.id)).cancel_asked
        assert await claim(backend) == []

    async def test_a_repeat_finds_what_is_done(self, backend: Backend) -> None:
        ids = await enqueue(backend, a_job(), a_job())
        await backend.jobs.cancel_all(ids, "not wanted")
        before = await snapshot(backend, *ids)
        assert set((await backend.jobs.cancel_all(ids, "again")).values()) == {Cancellation.TOO_LATE}
        assert await snapshot(backend, *ids) == before

    async def test_a_head_and_jobs_behind_it_are_cancelled_together_and_the_next_runs(self, backend: Backend) -> None:
        ids = await enqueue(backend, *(keyed() for _ in range(4)))
        await backend.jobs.cancel_all([ids[2], ids[0]], "not wanted")
        assert await state_of(backend, ids[1]) is JobState.READY
        job = await claim_one(backend)
        assert await finish(backend, job.lease, OUTCOMES["completed"]) is Verdict.DONE
        assert [each.id for each in await claim(backend)] == [ids[3]]


class TestDelete(Conformance):
    """`JobStore.delete`."""

    async def test_a_finished_job_is_deleted_with_all_that_belongs_to_it(self, backend: Backend) -> None:
        for state in sorted(FINAL_STATES):
            job_id, lease = await bring_to(backend, state)
            assert await backend.jobs.delete([job_id], FINAL_STATES, NOW) == {job_id: None}
            with pytest.raises(JobNotFound):
                await backend.insight.job(job_id)
            assert await result_of(backend, job_id) is None
            assert await backend.jobs.verify(lease) is Standing.LOST
            assert await backend.jobs.delete([job_id], FINAL_STATES, NOW) == {}

    async def test_the_fence_of_a_deleted_job_is_stale_and_its_id_is_free(self, backend: Backend) -> None:
        job_id, lease = await bring_to(backend, JobState.FAILED)
        await backend.jobs.delete([job_id], FINAL_STATES, NOW)
        assert await finish(backend, lease, OUTCOMES["completed"]) is Verdict.LOST
        assert await backend.jobs.enqueue([a_job(job_id=job_id)]) == [True]
        assert (await claim_one(backend)).fence > lease.fence
        assert (await backend.insight.job(job_id)).attempts == []

    @pytest.mark.parametrize("state", ALIVE)
    async def test_a_job_that_has_not_ended_is_not_deleted(self, backend: Backend, state: JobState) -> None:
        job_id, _ = await bring_to(backend, state)
        before = await snapshot(backend, job_id)
        assert await backend.jobs.delete([job_id], list(JobState), NOW) == {job_id: state}
        assert await snapshot(backend, job_id) == before

    async def test_a_blocked_job_is_not_deleted(self, backend: Backend) -> None:
        _, blocked = await enqueue(backend, keyed(), keyed())
        assert await backend.jobs.delete([blocked], list(JobState), NOW) == {blocked: JobState.BLOCKED}

    async def test_only_jobs_in_the_given_states_that_are_old_enough_are_deleted(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        old, _ = await bring_to(backend, JobState.FAILED)
        done, _ = await bring_to(backend, JobState.COMPLETED)
        clock.advance(timedelta(hours=1))
        new, _ = await bring_to(backend, JobState.FAILED)
        answers = await backend.jobs.delete([new, done, old, new_id()], {JobState.FAILED}, timedelta(minutes=30))
        assert answers == {old: None, new: JobState.FAILED, done: JobState.COMPLETED}
        assert await state_of(backend, new) is JobState.FAILED

    async def test_without_an_age_a_job_is_deleted_though_the_clock_was_set_back(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        ids = [(await bring_to(backend, state))[0] for state in sorted(FINAL_STATES)]
        clock.advance(timedelta(hours=-1))
        assert await backend.jobs.delete(ids, FINAL_STATES, NOW) == dict.fromkeys(ids)

    @pytest.mark.parametrize("deleted", [[0], [4], [1, 3], [0, 1, 2, 3], [1, 2, 3, 4]], ids=str)
    async def test_of_jobs_that_finished_in_one_call_the_others_are_still_pruned(
        self, backend: Backend, clock: ManualClock, deleted: list[int]
    ) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(5)))
        await backend.jobs.finish([Finish(job.lease, OUTCOMES["completed"]) for job in await claim(backend)])
        await backend.jobs.delete([ids[number] for number in deleted], FINAL_STATES, NOW)
        assert await backend.jobs.prune(Retention(), MANY) == 0
        clock.advance(timedelta(days=8))
        assert await backend.jobs.prune(Retention(), MANY) == 5 - len(deleted)

    async def test_a_job_that_ended_later_than_it_was_seen_is_not_retried(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        job_id, _ = await bring_to(backend, JobState.FAILED)
        seen = clock.now
        assert await backend.jobs.retry(job_id, ended_by=seen)
        clock.advance(timedelta(microseconds=1))
        await finish(backend, (await claim_one(backend)).lease, OUTCOMES["failed"])
        assert not await backend.jobs.retry(job_id, ended_by=seen)
        assert await state_of(backend, job_id) is JobState.FAILED
        assert await backend.jobs.retry(job_id, ended_by=clock.now)

    async def test_a_retry_or_a_deletion_of_a_failed_job_wins_never_both(self, backend: Backend) -> None:
        for _ in range(20):
            job_id, _ = await bring_to(backend, JobState.FAILED)
            deletion, retry = await asyncio.gather(
                backend.jobs.delete([job_id], FINAL_STATES, NOW), backend.jobs.retry(job_id), return_exceptions=True
            )
            if deletion == {job_id: None}:
                assert isinstance(retry, JobNotFound)
                with pytest.raises(JobNotFound):
                    await backend.insight.job(job_id)
                assert await claim(backend) == []
            else:
                assert (deletion, retry) == ({job_id: JobState.READY}, True)
                assert (await claim_one(backend)).id == job_id


class TestRun(Conformance):
    """`JobStore.run`."""

    @pytest.mark.parametrize("order_key", [None, "customer-3"])
    async def test_a_scheduled_job_is_run_now_before_its_time(
        self, backend: Backend, clock: ManualClock, order_key: str | None
    ) -> None:
        late = msgspec.structs.replace(a_job(delay=timedelta(hours=1)), order_key=order_key)
        (job_id,) = await enqueue(backend, late)
        assert await backend.jobs.run(job_id)
        details = await backend.insight.job(job_id)
        assert (details.job.state, details.job.run_at) == (JobState.READY, clock.now)
        assert (await claim_one(backend)).id == job_id

    async def test_a_retry_is_run_now_with_its_next_attempt(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES["retried"])
        assert await backend.jobs.run(job.id)
        again = await claim_one(backend)
        assert (again.id, again.attempt, again.used_attempts) == (job.id, 2, 2)

    async def test_a_job_that_is_not_scheduled_is_left_as_it_is_by_run(self, backend: Backend) -> None:
        for state in (JobState.RUNNING, *FINAL_STATES, JobState.READY):
            job_id, _ = await bring_to(backend, state)
            assert not await backend.jobs.run(job_id)
            assert await state_of(backend, job_id) is state
