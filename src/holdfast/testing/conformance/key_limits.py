"""Limits per key: of each limit key of a task, at most so many jobs run, and start at a rate."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.explanation import KeyLimitReached, KeyRateLimited
from holdfast.model.job import JobState, NewJob
from holdfast.model.job_facts import HolderFact
from holdfast.model.limits import Limit, LimitKey
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, ClaimRequest, Finish, Retention, Verdict
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
    state_of,
)
from holdfast.testing.conformance.explanations import send_heartbeat, why

EACH = LimitKey("key", "greet")
SECOND = timedelta(seconds=1)
READY, BLOCKED, SCHEDULED = JobState.READY, JobState.BLOCKED, JobState.SCHEDULED


def keyed(limit_key: str = "a", queue: str = "mail", **options: object) -> NewJob:
    """Return a new job with a limit key."""
    return msgspec.structs.replace(a_job(queue, limit_key=limit_key), **options)


async def states(backend: Backend, *job_ids: str) -> list[JobState]:
    """Return the states of jobs."""
    return [await state_of(backend, job_id) for job_id in job_ids]


async def limited(backend: Backend, number: int, *, running: int = 1) -> list[str]:
    """Limit each key, and enqueue so many jobs of one."""
    await backend.queues.limit(EACH, Limit(running=running))
    return await enqueue(backend, *(keyed() for _ in range(number)))


class TestKeyLimits(Conformance):
    """At most N running per limit key."""

    async def test_as_many_jobs_of_a_key_are_ready_as_may_run_the_others_are_blocked(self, backend: Backend) -> None:
        ids = await limited(backend, 2, running=2)
        ids += await enqueue(backend, keyed(), keyed())
        assert await states(backend, *ids) == [READY, READY, BLOCKED, BLOCKED]
        assert [job.id for job in await claim(backend)] == ids[:2]
        assert await claim(backend) == []

    async def test_keys_do_not_wait_for_each_other_nor_jobs_without_a_key(self, backend: Backend) -> None:
        await backend.queues.limit(EACH, Limit(running=1))
        ids = await enqueue(backend, keyed("a"), keyed("a"), keyed("b"), a_job("mail"), keyed("b"), a_job("mail"))
        assert [job.id for job in await claim(backend)] == [ids[0], ids[2], ids[3], ids[5]]

    async def test_a_key_belongs_to_its_task_and_its_queue(self, backend: Backend) -> None:
        await backend.queues.limit(EACH, Limit(running=1))
        await backend.queues.limit(LimitKey("key", "other"), Limit(running=1))
        ids = await enqueue(backend, keyed(), keyed(queue="sale"), keyed(task="other"), keyed())
        found = await claim(backend, tasks=("greet", "other"))
        assert [job.id for job in found] == ids[:3]

    @pytest.mark.parametrize("outcome", sorted(OUTCOMES))
    async def test_every_end_of_an_attempt_frees_the_slot(self, backend: Backend, outcome: str) -> None:
        _, second, third = await limited(backend, 3)
        job = await claim_one(backend)
        assert await finish(backend, job.lease, OUTCOMES[outcome]) is Verdict.DONE
        following = second if await state_of(backend, job.id) is not READY else job.id
        assert [each.id for each in await claim(backend)] == [following]
        assert await state_of(backend, third) is BLOCKED

    async def test_a_finish_of_many_frees_as_many_slots(self, backend: Backend) -> None:
        ids = await limited(backend, 6, running=3)
        held = await claim(backend)
        outcomes = [OUTCOMES["completed"], OUTCOMES["failed"], OUTCOMES["completed"]]
        await backend.jobs.finish([Finish(job.lease, each) for job, each in zip(held, outcomes, strict=True)])
        assert [job.id for job in await claim(backend)] == ids[3:]

    async def test_waiting_jobs_are_admitted_by_turn(self, backend: Backend) -> None:
        first, low, *_ = await limited(backend, 2)
        high, early = await enqueue(backend, keyed(priority=5), keyed(priority=9))
        order: list[str] = []
        while jobs := await claim(backend):
            order += [job.id for job in jobs]
            await finish(backend, jobs[0].lease, OUTCOMES["completed"])
        assert order == [first, early, high, low]

    async def test_a_released_job_waits_for_a_slot_by_its_old_turn(self, backend: Backend) -> None:
        first, second = await limited(backend, 2)
        job = await claim_one(backend)
        await backend.jobs.release([job.lease], started=False)
        assert await states(backend, first, second) == [READY, BLOCKED]
        await backend.jobs.release([job.lease], started=False)  # stale: frees nothing
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await states(backend, first, second) == [READY, BLOCKED]

    async def test_a_delayed_or_retrying_job_holds_no_slot_and_waits_for_one_when_it_is_due(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.queues.limit(EACH, Limit(running=1))
        later, first, second = await enqueue(backend, keyed(delay=10 * SECOND), keyed(), keyed())
        assert await states(backend, later, first, second) == [SCHEDULED, READY, BLOCKED]
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["retried"])
        assert await states(backend, first, second) == [SCHEDULED, READY]
        clock.advance(timedelta(hours=1))
        assert (await backend.jobs.promote(MANY)).moved == 2
        assert await states(backend, later, first, second) == [BLOCKED, BLOCKED, READY]

    async def test_an_expired_lease_holds_its_slot_until_it_is_rescued(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        first, second = await limited(backend, 2)
        await claim_one(backend)
        clock.advance(LEASE * 2)
        assert await claim(backend) == []
        await backend.jobs.rescue(None, MANY)
        assert await states(backend, first, second) == [READY, BLOCKED]

    async def test_a_cancelled_ready_job_gives_its_slot_to_the_next_and_a_blocked_one_none(
        self, backend: Backend
    ) -> None:
        first, second, third, fourth = await limited(backend, 4)
        assert await backend.jobs.cancel(second, "no") is Cancellation.CANCELLED
        assert await states(backend, first, third) == [READY, BLOCKED]
        await backend.jobs.cancel_all([first, third], "no")
        assert await state_of(backend, fourth) is READY

    async def test_a_job_that_an_operator_retries_waits_for_a_slot(self, backend: Backend) -> None:
        first, second = await limited(backend, 2)
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.retry(first)
        assert await states(backend, first, second) == [BLOCKED, READY]

    async def test_a_reset_job_waits_for_a_slot_like_the_others(self, backend: Backend) -> None:
        first, second = await limited(backend, 2)
        await claim_one(backend)
        assert await backend.jobs.reset(first)
        assert await states(backend, first, second) == [READY, BLOCKED]

    async def test_a_child_joins_its_key_when_its_parents_have_ended(self, backend: Backend) -> None:
        first, *_ = await limited(backend, 1)
        (parent,) = await enqueue(backend, a_job("mail", task="other"))
        (child,) = await enqueue(backend, keyed(conditions=Conditions(after=(parent,))))
        (job,) = await claim(backend, tasks=("other",))
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await states(backend, first, child) == [READY, BLOCKED]
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await state_of(backend, child) is READY

    async def test_the_end_of_a_job_in_a_key_releases_its_children(self, backend: Backend) -> None:
        first, second = await limited(backend, 2)
        (child,) = await enqueue(
            backend, msgspec.structs.replace(a_job(), conditions=Conditions(after=(first, second)))
        )
        for _ in range(2):
            job = await claim_one(backend)
            await finish(backend, job.lease, OUTCOMES["completed"])
        assert await state_of(backend, child) is READY

    async def test_a_replaced_job_keeps_within_the_limit(self, backend: Backend, clock: ManualClock) -> None:
        first, *_ = await limited(backend, 1)
        unique = Conditions(unique=Unique("k", UniqueScope.UNFINISHED, OnConflict.REPLACE))
        (kept,) = await enqueue(backend, keyed(conditions=unique))
        assert await backend.jobs.enqueue([keyed(conditions=unique, delay=10 * SECOND)]) == [kept]
        await backend.jobs.cancel(first, "no")
        assert await state_of(backend, kept) is SCHEDULED
        clock.advance(10 * SECOND)
        await backend.jobs.promote(MANY)
        assert await state_of(backend, kept) is READY
        assert await backend.jobs.enqueue([keyed(conditions=unique, delay=SECOND)]) == [kept]
        (other,) = await enqueue(backend, keyed())
        assert await states(backend, kept, other) == [SCHEDULED, READY]

    async def test_a_raised_limit_admits_more_and_a_removed_one_all(self, backend: Backend) -> None:
        ids = await limited(backend, 5)
        await backend.queues.limit(EACH, Limit(running=3))
        assert await states(backend, *ids) == [READY, READY, READY, BLOCKED, BLOCKED]
        await backend.queues.limit(EACH, None)
        assert await states(backend, *ids) == [READY] * 5

    async def test_a_lowered_limit_interrupts_nothing_and_lets_ready_jobs_wait(self, backend: Backend) -> None:
        ids = await limited(backend, 4, running=3)
        held = await claim(backend, 2)
        await backend.queues.limit(EACH, Limit(running=1))
        assert await states(backend, *ids[2:]) == [BLOCKED, BLOCKED]
        await finish(backend, held[0].lease, OUTCOMES["completed"])
        assert await claim(backend) == []
        await finish(backend, held[1].lease, OUTCOMES["completed"])
        assert [job.id for job in await claim(backend)] == ids[2:3]

    async def test_jobs_that_were_claimed_before_the_limit_was_set_count(self, backend: Backend) -> None:
        ids = await enqueue(backend, keyed(), keyed(), keyed())
        (job,) = await claim(backend, 1)
        await backend.queues.limit(EACH, Limit(running=1))
        assert await states(backend, *ids[1:]) == [BLOCKED, BLOCKED]
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await states(backend, *ids[1:]) == [READY, BLOCKED]

    async def test_concurrent_enqueues_ends_and_claims_never_exceed_the_limit(self, backend: Backend) -> None:
        await backend.queues.limit(EACH, Limit(running=2))
        await asyncio.gather(*(backend.jobs.enqueue([keyed(), keyed("b")]) for _ in range(8)))
        done = 0
        while done < 16:
            found = await asyncio.gather(*(claim(backend, 4, worker_id=f"w{number}") for number in range(4)))
            held = [job for some in found for job in some]
            assert 1 <= len(held) <= 4
            await asyncio.gather(*(finish(backend, job.lease, OUTCOMES["completed"]) for job in held))
            done += len(held)
        assert await claim(backend) == []

    async def test_a_claimer_takes_no_more_jobs_of_such_a_task_than_it_has_slots(self, backend: Backend) -> None:
        await backend.queues.limit(EACH, Limit(running=9))
        await enqueue(backend, *(keyed() for _ in range(4)), a_job("mail", task="other"))
        request = ClaimRequest(worker_id="w", tasks=("greet", "other"), limit=4, lease=LEASE, slots=1)
        assert [job.task for job in (await backend.jobs.claim(request)).jobs] == ["greet", "other"]

    async def test_jobs_that_wait_for_a_slot_are_left_to_do(self, backend: Backend) -> None:
        await limited(backend, 3)
        await claim_one(backend)
        left = await backend.jobs.outstanding(("greet",), None)
        assert (left.blocked, left.running, left.is_empty) == (2, 1, False)
        assert (await backend.jobs.outstanding(("other",), None)).unknown == 2
        await backend.queues.pause("mail")
        assert (await backend.jobs.outstanding(("greet",), None)).paused == 2

    async def test_ended_jobs_of_a_key_are_pruned_and_deleted(self, backend: Backend, clock: ManualClock) -> None:
        first, second = await limited(backend, 2)
        for _ in range(2):
            await finish(backend, (await claim_one(backend)).lease, OUTCOMES["completed"])
        assert await backend.jobs.delete([first], set(JobState), timedelta(0)) == {first: None}
        clock.advance(SECOND)
        assert await backend.jobs.prune(Retention(completed=timedelta(0)), MANY) == 1
        assert await backend.insight.find(second, 1) == []

    async def test_a_blocked_job_is_explained_by_the_limit_of_its_key_and_the_jobs_that_run(
        self, backend: Backend
    ) -> None:
        await send_heartbeat(backend, concurrency=10)
        *first, waiting = await limited(backend, 3, running=2)
        assert await why(backend, waiting) == KeyLimitReached("greet", "a", 2, 2, ())
        await enqueue(backend, keyed("b"))
        running = [HolderFact(job.id, job.seq, "mail", "greet", "worker-a") for job in await claim(backend)]
        cause = await why(backend, waiting)
        assert isinstance(cause, KeyLimitReached)
        assert (cause.most, cause.admitted) == (2, 2)
        assert set(cause.holders) == {holder for holder in running if holder.job_id in first}


class TestKeyRates(Conformance):
    """Starts per time and limit key."""

    async def test_a_burst_at_once_then_one_per_step_of_each_key(self, backend: Backend, clock: ManualClock) -> None:
        await backend.queues.limit(EACH, Limit(rate="60/m", burst=2))
        ids = await enqueue(backend, *(keyed() for _ in range(5)), keyed("b"))
        assert [job.id for job in await claim(backend)] == [*ids[:2], ids[5]]
        assert (await backend.jobs.promote(MANY)).next_due == SECOND
        for job_id in ids[2:5]:
            assert await claim(backend) == []
            clock.advance(SECOND)
            await backend.jobs.promote(MANY)
            assert [job.id for job in await claim(backend)] == [job_id]

    async def test_the_rate_counts_from_the_claim_however_long_a_job_was_ready(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.queues.limit(EACH, Limit(rate="1/s"))
        ids = await enqueue(backend, keyed(), keyed(), keyed())
        for _ in range(3):
            clock.advance(20 * SECOND)
            await backend.jobs.promote(MANY)
            assert await states(backend, *ids) == [READY, BLOCKED, BLOCKED]
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await claim(backend) == []
        clock.advance(SECOND)
        await backend.jobs.promote(MANY)
        assert [each.id for each in await claim(backend)] == ids[1:2]

    async def test_every_attempt_counts_and_a_cancelled_ready_job_does_not(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.queues.limit(EACH, Limit(rate="1/s"))
        first, second, third = await enqueue(backend, keyed(), keyed(), keyed())
        await backend.jobs.cancel(first, "no")
        assert await states(backend, second, third) == [READY, BLOCKED]
        job = await claim_one(backend)
        await backend.jobs.release([job.lease], started=True)
        assert await states(backend, second, third) == [BLOCKED, BLOCKED]
        clock.advance(SECOND)
        await backend.jobs.promote(MANY)
        assert await states(backend, second, third) == [READY, BLOCKED]

    async def test_a_rate_and_a_number_hold_both(self, backend: Backend, clock: ManualClock) -> None:
        await backend.queues.limit(EACH, Limit(running=2, rate="1/s", burst=5))
        await enqueue(backend, *(keyed() for _ in range(9)))
        held = await claim(backend)
        assert len(held) == 2
        clock.advance(60 * SECOND)
        await backend.jobs.promote(MANY)
        assert await claim(backend) == []
        await finish(backend, held[0].lease, OUTCOMES["completed"])
        assert len(await claim(backend)) == 1

    async def test_the_rate_of_a_key_is_not_forgotten_with_its_last_job(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.queues.limit(EACH, Limit(rate="1/m"))
        await enqueue(backend, keyed())
        await finish(backend, (await claim_one(backend)).lease, OUTCOMES["completed"])
        (second,) = await enqueue(backend, keyed())
        assert await state_of(backend, second) is BLOCKED
        clock.advance(timedelta(minutes=1))
        assert (await backend.jobs.promote(MANY)).next_due is None
        assert await state_of(backend, second) is READY

    async def test_a_rate_that_is_set_later_holds_for_jobs_that_are_ready(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        ids = await enqueue(backend, *(keyed() for _ in range(5)))
        await backend.queues.limit(EACH, Limit(rate="1/s", burst=2))
        assert await states(backend, *ids) == [READY, READY, BLOCKED, BLOCKED, BLOCKED]
        await backend.queues.limit(EACH, Limit(rate="1/s"))
        assert [job.id for job in await claim(backend)] == ids[:1]
        clock.advance(SECOND)
        await backend.jobs.promote(MANY)
        assert [job.id for job in await claim(backend)] == ids[1:2]

    async def test_a_repeated_enqueue_changes_nothing(self, backend: Backend) -> None:
        await backend.queues.limit(EACH, Limit(running=1, rate="1/s"))
        jobs = [keyed(), keyed()]
        assert await backend.jobs.enqueue(jobs) == [True, True]
        assert await backend.jobs.enqueue(jobs) == [False, False]
        assert await states(backend, *(job.id for job in jobs)) == [READY, BLOCKED]

    async def test_limits_per_key_are_declared_and_listed(self, backend: Backend) -> None:
        limit = Limit(running=4, rate="90/m", burst=2)
        assert await backend.queues.declare({EACH: limit}) == [EACH]
        assert await backend.queues.declare({EACH: limit}) == []
        assert [(use.key, use.limit) for use in await backend.insight.limits()] == [(EACH, limit)]
        await enqueue(backend, keyed())
        (task,) = await backend.insight.tasks()
        assert (task.limit, task.key_limit) == (None, limit)
        assert await backend.queues.declare({EACH: None}) == [EACH]
        assert await backend.insight.limits() == []

    async def test_a_blocked_job_is_explained_by_the_rate_of_its_key(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await send_heartbeat(backend, concurrency=10)
        await backend.queues.limit(EACH, Limit(rate="1/m"))
        _, waiting = await enqueue(backend, keyed(), keyed())
        await claim_one(backend)
        assert await why(backend, waiting) == KeyRateLimited("greet", "a", "1/m", clock.now + 60 * SECOND)
