"""Order keys: only the head of each order key may run, and its end unblocks the next job.

Blocked jobs, concurrency and transactions are in `blocked_jobs`.
"""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.model.job import JobState, LeasedJob, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Finish, Verdict
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
    snapshot,
    state_of,
)

ENDS = ("completed", "failed", "cancelled")


def keyed(order_key: str = "customer-3", queue: str = "default", *, task: str = "greet", **options: object) -> NewJob:
    """Return a new job with an order key."""
    return msgspec.structs.replace(a_job(queue, task=task), order_key=order_key, **options)


async def states(backend: Backend, *job_ids: str) -> list[JobState]:
    """Return the states of jobs."""
    return [await state_of(backend, job_id) for job_id in job_ids]


async def hold_head(backend: Backend, *, waiting: int, max_attempts: int = 5) -> tuple[LeasedJob, list[str]]:
    """Enqueue jobs with one order key and claim the head; return it and the ids of the blocked jobs."""
    head, *others = await enqueue(backend, *(keyed(max_attempts=max_attempts) for _ in range(waiting + 1)))
    job = await claim_one(backend)
    assert job.id == head
    return job, others


class TestOrderKey(Conformance):
    """`JobStore.enqueue` and `JobStore.claim` with order keys."""

    async def test_only_the_head_of_an_order_key_is_ready_the_others_are_blocked(self, backend: Backend) -> None:
        first = await enqueue(backend, keyed(), keyed())
        second = await enqueue(backend, keyed())
        assert await states(backend, *first, *second) == [JobState.READY, JobState.BLOCKED, JobState.BLOCKED]
        assert [job.id for job in await claim(backend)] == first[:1]
        assert await claim(backend) == []

    async def test_the_jobs_of_one_order_key_run_one_at_a_time_in_the_order_of_their_seq(
        self, backend: Backend
    ) -> None:
        ids = await enqueue(backend, *(keyed() for _ in range(3)))
        ids += await enqueue(backend, keyed(priority=100), keyed(priority=-100))
        done: list[str] = []
        while jobs := await claim(backend):
            (job,) = jobs
            done.append(job.id)
            assert await finish(backend, job.lease, Completed()) is Verdict.DONE
        assert done == ids

    async def test_order_keys_do_not_wait_for_each_other(self, backend: Backend) -> None:
        ids = await enqueue(backend, keyed("a"), keyed("a"), keyed("b"), a_job(), keyed("b"))
        assert [job.id for job in await claim(backend)] == [ids[0], ids[2], ids[3]]

    async def test_an_order_key_belongs_to_one_queue_and_spans_its_tasks(self, backend: Backend) -> None:
        ids = await enqueue(backend, keyed(queue="mail"), keyed(queue="sale"), keyed(queue="mail", task="charge"))
        assert await states(backend, *ids) == [JobState.READY, JobState.READY, JobState.BLOCKED]

    async def test_keys_differ_by_every_character(self, backend: Backend) -> None:
        names = ["a", "A", "a ", "å", "a\N{COMBINING RING ABOVE}", "\N{PILE OF POO}", "x" * 128]
        ids = await enqueue(backend, *(keyed(name) for name in names))
        assert await states(backend, *ids) == [JobState.READY] * len(names)
        assert [(await backend.insight.job(job_id)).job.order_key for job_id in ids] == names

    async def test_a_delayed_head_blocks_the_later_ones_too(self, backend: Backend, clock: ManualClock) -> None:
        delayed, later = await enqueue(backend, keyed(delay=timedelta(minutes=5)), keyed())
        assert await states(backend, delayed, later) == [JobState.SCHEDULED, JobState.BLOCKED]
        assert await claim(backend) == []
        clock.advance(timedelta(minutes=6))
        await backend.jobs.promote(MANY)
        job = await claim_one(backend)
        assert job.id == delayed
        await finish(backend, job.lease, Completed())
        assert (await claim_one(backend)).id == later

    async def test_a_job_unblocked_before_it_is_due_is_scheduled(self, backend: Backend, clock: ManualClock) -> None:
        (head,) = await enqueue(backend, keyed())
        (delayed,) = await enqueue(backend, keyed(delay=timedelta(minutes=5)))
        job = await claim_one(backend)
        assert (job.id, await state_of(backend, delayed)) == (head, JobState.BLOCKED)
        await finish(backend, job.lease, Completed())
        assert await state_of(backend, delayed) is JobState.SCHEDULED
        assert (await backend.jobs.promote(MANY)).next_due == timedelta(minutes=5)
        clock.advance(timedelta(minutes=6))
        await backend.jobs.promote(MANY)
        assert (await claim_one(backend)).id == delayed

    async def test_a_job_unblocked_after_it_fell_due_is_ready(self, backend: Backend, clock: ManualClock) -> None:
        await enqueue(backend, keyed())
        (delayed,) = await enqueue(backend, keyed(delay=timedelta(seconds=5)))
        job = await claim_one(backend)
        clock.advance(LEASE / 2)
        await finish(backend, job.lease, Completed())
        assert await state_of(backend, delayed) is JobState.READY

    async def test_a_repeated_enqueue_changes_no_order_key(self, backend: Backend) -> None:
        jobs = [keyed(), keyed()]
        await enqueue(backend, *jobs)
        for _ in range(2):
            assert await backend.jobs.enqueue(jobs) == [False, False]
        assert await backend.jobs.enqueue([jobs[1], keyed(), jobs[0]]) == [False, True, False]
        assert await states(backend, *(job.id for job in jobs)) == [JobState.READY, JobState.BLOCKED]
        for job in jobs:
            held = await claim_one(backend)
            assert held.id == job.id
            await finish(backend, held.lease, Completed())
            assert await backend.jobs.enqueue([job]) == [False]
        assert len(await claim(backend)) == 1

    async def test_an_id_given_twice_in_a_call_is_queued_once(self, backend: Backend) -> None:
        job = keyed()
        assert await backend.jobs.enqueue([job, job]) == [True, False]
        held = await claim_one(backend)
        await finish(backend, held.lease, Completed())
        assert await claim(backend) == []

    async def test_a_repeat_of_a_job_that_has_ended_leaves_its_order_key_free(self, backend: Backend) -> None:
        job = keyed()
        await enqueue(backend, job)
        await finish(backend, (await claim_one(backend)).lease, Completed())
        assert await backend.jobs.enqueue([job]) == [False]
        (following,) = await enqueue(backend, keyed())
        assert await state_of(backend, following) is JobState.READY

    async def test_a_claim_returns_the_order_key(self, backend: Backend) -> None:
        await enqueue(backend, keyed("customer-3"), a_job())
        assert [job.order_key for job in await claim(backend)] == ["customer-3", None]

    async def test_a_large_batch_of_many_order_keys_is_enqueued_in_one_call(self, backend: Backend) -> None:
        names = [f"customer-{number % 50}" for number in range(1000)]
        jobs = [keyed(name) for name in names]
        await enqueue(backend, *jobs)
        heads = await claim(backend)
        assert [job.id for job in heads] == [job.id for job in jobs[:50]]
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in heads])
        assert [job.id for job in await claim(backend)] == [job.id for job in jobs[50:100]]


class TestHeadEnds(Conformance):
    """Every way in which the head ends unblocks the next job, once."""

    @pytest.mark.parametrize("end", ENDS)
    async def test_the_end_of_the_head_unblocks_the_next(self, backend: Backend, end: str) -> None:
        job, others = await hold_head(backend, waiting=2)
        assert await finish(backend, job.lease, OUTCOMES[end]) is Verdict.DONE
        assert await states(backend, *others) == [JobState.READY, JobState.BLOCKED]
        assert [each.id for each in await claim(backend)] == others[:1]

    @pytest.mark.parametrize("end", ENDS)
    async def test_a_repeat_of_the_finish_unblocks_no_other(self, backend: Backend, end: str) -> None:
        job, others = await hold_head(backend, waiting=2)
        for _ in range(3):
            assert await finish(backend, job.lease, OUTCOMES[end]) is Verdict.DONE
        assert await states(backend, *others) == [JobState.READY, JobState.BLOCKED]

    async def test_a_completion_in_a_batch_unblocks_the_next(self, backend: Backend) -> None:
        ids = await enqueue(backend, keyed("a"), a_job(), keyed("b"), a_job(), keyed("a"), keyed("b"), keyed("b"))
        jobs = await claim(backend)
        verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        assert verdicts == [Verdict.DONE] * 4
        assert [job.id for job in await claim(backend)] == [ids[4], ids[5]]

    @pytest.mark.parametrize("outcome", ["retried", "snoozed"])
    async def test_a_head_that_runs_again_later_keeps_its_key(
        self, backend: Backend, clock: ManualClock, outcome: str
    ) -> None:
        job, others = await hold_head(backend, waiting=1)
        await finish(backend, job.lease, OUTCOMES[outcome])
        assert await states(backend, job.id, *others) == [JobState.SCHEDULED, JobState.BLOCKED]
        clock.advance(timedelta(minutes=1))
        await backend.jobs.promote(MANY)
        again = await claim_one(backend)
        assert (again.id, await claim(backend)) == (job.id, [])
        await finish(backend, again.lease, Completed())
        assert [each.id for each in await claim(backend)] == others

    async def test_a_released_head_keeps_its_key(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1)
        for started in (False, True):
            await backend.jobs.release([job.lease], started=started)
            assert await states(backend, job.id, *others) == [JobState.READY, JobState.BLOCKED]
            job = await claim_one(backend)
        await backend.jobs.reset(job.id)
        assert await states(backend, job.id, *others) == [JobState.READY, JobState.BLOCKED]
        again = await claim_one(backend)
        await finish(backend, again.lease, Completed())
        assert [each.id for each in await claim(backend)] == others

    async def test_a_head_rescued_to_run_again_keeps_its_key(self, backend: Backend, clock: ManualClock) -> None:
        job, others = await hold_head(backend, waiting=1)
        clock.advance(LEASE * 2)
        await backend.jobs.rescue(None, MANY)
        assert await states(backend, job.id, *others) == [JobState.READY, JobState.BLOCKED]
        again = await claim_one(backend)
        await finish(backend, again.lease, Completed())
        assert [each.id for each in await claim(backend)] == others

    @pytest.mark.parametrize("by", ["expiry", "worker"])
    async def test_a_head_failed_by_a_rescue_unblocks_the_next(
        self, backend: Backend, clock: ManualClock, by: str
    ) -> None:
        job, others = await hold_head(backend, waiting=2)
        ready: list[LeasedJob] = []
        for _ in range(3):
            assert await states(backend, *others) == [JobState.BLOCKED, JobState.BLOCKED]
            clock.advance(LEASE * 2)
            if by == "expiry":
                await backend.jobs.rescue(None, MANY)
            else:
                await backend.jobs.rescue_worker("worker-a", "killed", MANY)
            ready = await claim(backend)
        assert (await state_of(backend, job.id), [each.id for each in ready]) == (JobState.FAILED, others[:1])

    async def test_a_head_failed_by_a_release_unblocks_the_next(self, backend: Backend) -> None:
        job, others = await hold_head(backend, waiting=1, max_attempts=1)
        while job.id not in others:
            await backend.jobs.release([job.lease], started=True)
            job = await claim_one(backend)
        assert await state_of(backend, others[0]) is JobState.RUNNING

    @pytest.mark.parametrize("state", [JobState.READY, JobState.SCHEDULED])
    async def test_a_head_cancelled_before_it_started_unblocks_the_next(
        self, backend: Backend, state: JobState
    ) -> None:
        delay = timedelta(minutes=5) if state is JobState.SCHEDULED else None
        head, *others = await enqueue(backend, keyed(delay=delay), keyed(), keyed())
        assert await state_of(backend, head) is state
        assert await backend.jobs.cancel(head, "not wanted") is Cancellation.CANCELLED
        assert await states(backend, *others) == [JobState.READY, JobState.BLOCKED]

    @pytest.mark.parametrize("how", ["retried", "release", "rescue", "reset"])
    async def test_a_head_with_a_cancel_request_unblocks_the_next_when_it_ends(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        job, others = await hold_head(backend, waiting=1)
        assert await backend.jobs.cancel(job.id, "not wanted") is Cancellation.ASKED
        assert await states(backend, *others) == [JobState.BLOCKED]
        clock.advance(LEASE * 2)
        if how == "retried":
            await finish(backend, job.lease, OUTCOMES["retried"])
        elif how == "release":
            await backend.jobs.release([job.lease], started=False)
        elif how == "rescue":
            await backend.jobs.rescue(None, MANY)
        else:
            await backend.jobs.reset(job.id)
        assert await states(backend, job.id, *others) == [JobState.CANCELLED, JobState.READY]

    @pytest.mark.parametrize("outcome", sorted(OUTCOMES))
    async def test_a_stale_fence_unblocks_none(self, backend: Backend, clock: ManualClock, outcome: str) -> None:
        stale, others = await hold_head(backend, waiting=1)
        clock.advance(LEASE * 2)
        await backend.jobs.rescue(None, MANY)
        again = await claim_one(backend, worker_id="worker-b")
        before = await snapshot(backend, again.id, *others)
        assert await finish(backend, stale.lease, OUTCOMES[outcome]) is Verdict.LOST
        assert await snapshot(backend, again.id, *others) == before

    async def test_an_unblocked_job_keeps_its_turn(self, backend: Backend, clock: ManualClock) -> None:
        job, (following,) = await hold_head(backend, waiting=1)
        clock.advance(LEASE / 2)
        (other,) = await enqueue(backend, a_job())
        await finish(backend, job.lease, Completed())
        assert [each.id for each in await claim(backend)] == [following, other]
