"""Unique keys: who holds one, what a conflict does, and that no call is ever answered with two jobs."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.errors import UniqueConflict
from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.job import JobState, LeasedJob, NewJob
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, JobFilter
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
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

HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)
WAITING, UNFINISHED, PERIOD = UniqueScope
KEEP, REPLACE, RAISE = OnConflict


def unique(
    key: str = "k",
    scope: UniqueScope = UNFINISHED,
    on_conflict: OnConflict = KEEP,
    *,
    task: str = "greet",
    payload: str = "{}",
    delay: timedelta | None = None,
    job_id: str | None = None,
    order_key: str | None = None,
) -> NewJob:
    """Return a job with a unique key; that of a period is an hour."""
    period = HOUR if scope is PERIOD else None
    job = a_job(task=task, payload=payload, delay=delay, job_id=job_id)
    conditions = Conditions(unique=Unique(key, scope, on_conflict, period))
    return msgspec.structs.replace(job, conditions=conditions, order_key=order_key)


async def start(backend: Backend, job: NewJob) -> LeasedJob:
    """Enqueue a job and claim it."""
    await enqueue(backend, job)
    leased = await claim_one(backend)
    assert leased.id == job.id
    return leased


async def number_of_jobs(backend: Backend) -> int:
    """Return the number of jobs in all states."""
    pages = [await backend.insight.jobs(JobFilter(state=state, limit=MANY)) for state in JobState]
    return sum(len(page.jobs) for page in pages)


class TestUniqueScopes(Conformance):
    """How long a job holds its key."""

    @pytest.mark.parametrize("scope", UniqueScope)
    async def test_while_a_job_waits_every_other_caller_gets_that_job(
        self, backend: Backend, scope: UniqueScope
    ) -> None:
        first = unique(scope=scope)
        assert await backend.jobs.enqueue([first]) == [True]
        assert await backend.jobs.enqueue([unique(scope=scope)]) == [first.id]
        assert await backend.jobs.enqueue([unique(scope=scope), unique(scope=scope)]) == [first.id, first.id]
        assert [job.id for job in await claim(backend)] == [first.id]

    async def test_keys_belong_to_their_task_and_other_jobs_need_none(self, backend: Backend) -> None:
        jobs = [unique("a"), unique("b"), unique("a", task="other"), a_job(), a_job()]
        assert await backend.jobs.enqueue(jobs) == [True] * 5
        assert await backend.jobs.enqueue([a_job(), unique("b"), unique("c")]) == [True, jobs[1].id, True]

    @pytest.mark.parametrize(
        ("scope", "is_held"), [(WAITING, False), (UNFINISHED, True), (PERIOD, True)], ids=list(UniqueScope)
    )
    async def test_a_job_that_runs_holds_its_key_or_not(
        self, backend: Backend, scope: UniqueScope, is_held: bool
    ) -> None:
        holder = await start(backend, unique(scope=scope))
        second = unique(scope=scope)
        assert await backend.jobs.enqueue([second]) == [holder.id if is_held else True]

    @pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
    @pytest.mark.parametrize(
        ("scope", "is_held"), [(WAITING, False), (UNFINISHED, False), (PERIOD, True)], ids=list(UniqueScope)
    )
    async def test_a_job_that_has_ended_holds_its_key_or_not(
        self, backend: Backend, scope: UniqueScope, is_held: bool, end: str
    ) -> None:
        holder = await start(backend, unique(scope=scope))
        await finish(backend, holder.lease, OUTCOMES[end])
        assert await backend.jobs.enqueue([unique(scope=scope)]) == [holder.id if is_held else True]

    async def test_a_period_counts_from_the_enqueue_by_the_clock_of_the_store(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        first, later = unique(scope=PERIOD), unique(scope=PERIOD)
        await enqueue(backend, first)
        clock.advance(HOUR - TICK)
        assert await backend.jobs.enqueue([later]) == [first.id]
        clock.advance(TICK)
        assert await backend.jobs.enqueue([later]) == [True]
        clock.advance(HOUR - TICK)
        assert await backend.jobs.enqueue([unique(scope=PERIOD)]) == [later.id]

    @pytest.mark.parametrize("outcome", ["retried", "snoozed"])
    async def test_a_job_that_will_run_again_holds_its_key_while_it_waits(self, backend: Backend, outcome: str) -> None:
        for scope in (WAITING, UNFINISHED):
            holder = await start(backend, unique(scope, scope))
            await finish(backend, holder.lease, OUTCOMES[outcome])
            assert await backend.jobs.enqueue([unique(scope, scope)]) == [holder.id]

    async def test_a_job_that_will_run_again_leaves_its_key_to_one_that_took_it_meanwhile(
        self, backend: Backend
    ) -> None:
        first = await start(backend, unique(scope=WAITING))
        (second,) = await enqueue(backend, unique(scope=WAITING))
        await finish(backend, first.lease, OUTCOMES["retried"])
        assert await backend.jobs.enqueue([unique(scope=WAITING)]) == [second]
        assert await backend.jobs.cancel(second, "") is Cancellation.CANCELLED
        assert await backend.jobs.enqueue([unique(scope=WAITING)]) == [True]  # the first one's key is not looked for

    async def test_a_blocked_job_holds_its_key(self, backend: Backend) -> None:
        head, behind = unique("head", order_key="x"), unique(scope=WAITING, order_key="x")
        await enqueue(backend, head, behind)
        assert await state_of(backend, behind.id) is JobState.BLOCKED
        assert await backend.jobs.enqueue([unique(scope=WAITING)]) == [behind.id]

    async def test_the_key_of_a_job_is_shown_even_after_another_job_took_it(self, backend: Backend) -> None:
        holder = await start(backend, unique("größe 🙂"))
        await finish(backend, holder.lease, OUTCOMES["completed"])
        (second,) = await enqueue(backend, unique("größe 🙂"))
        (plain,) = await enqueue(backend, a_job())
        shown = [(await backend.insight.job(job_id)).unique_key for job_id in (holder.id, second, plain)]
        assert shown == ["größe 🙂", "größe 🙂", None]


class TestUniqueConflicts(Conformance):
    """Keep, replace, raise."""

    async def test_a_conflict_that_raises_names_the_holder_and_enqueues_nothing(self, backend: Backend) -> None:
        (holder,) = await enqueue(backend, unique())
        others = [a_job(), unique("free", PERIOD), unique(on_conflict=RAISE)]
        with pytest.raises(UniqueConflict, match=holder) as caught:
            await backend.jobs.enqueue(others)
        assert (caught.value.job_id, caught.value.task, caught.value.unique_key) == (holder, "greet", "k")
        assert await number_of_jobs(backend) == 1
        assert await backend.jobs.enqueue([unique("free", PERIOD)]) == [True]

    async def test_without_a_conflict_raise_enqueues(self, backend: Backend) -> None:
        assert await backend.jobs.enqueue([unique(on_conflict=RAISE)]) == [True]

    async def test_of_one_call_the_first_job_of_a_key_is_enqueued_and_the_others_get_it(self, backend: Backend) -> None:
        first, second, other = unique(), unique(), unique("other")
        assert await backend.jobs.enqueue([first, other, second]) == [True, True, first.id]
        with pytest.raises(UniqueConflict):
            await backend.jobs.enqueue([unique("new"), unique("new", on_conflict=RAISE)])
        assert await number_of_jobs(backend) == 2

    async def test_replace_gives_a_waiting_job_new_arguments_and_a_new_time(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (holder,) = await enqueue(backend, unique(payload="[1]", delay=HOUR))
        assert await backend.jobs.enqueue([unique(on_conflict=REPLACE, payload="[2]")]) == [holder]
        details = await backend.insight.job(holder)
        assert (details.job.state, details.payload, details.job.run_at) == (JobState.READY, "[2]", clock.now)
        assert await backend.jobs.enqueue([unique(on_conflict=REPLACE, payload="[3]", delay=HOUR)]) == [holder]
        details = await backend.insight.job(holder)
        assert (details.job.state, details.job.run_at) == (JobState.SCHEDULED, clock.now + HOUR)
        assert await claim(backend) == []
        clock.advance(HOUR)
        await backend.jobs.promote(MANY)
        (leased,) = await claim(backend)
        assert (leased.id, leased.payload, leased.attempt) == (holder, "[3]", 1)

    async def test_replace_leaves_a_blocked_job_at_its_place(self, backend: Backend, clock: ManualClock) -> None:
        jobs = [unique(name, order_key="x", payload=f'["{name}"]') for name in "abc"]
        await enqueue(backend, *jobs)
        assert await backend.jobs.enqueue([unique("b", on_conflict=REPLACE, payload="[2]", delay=HOUR)]) == [jobs[1].id]
        assert await state_of(backend, jobs[1].id) is JobState.BLOCKED
        first = await claim_one(backend)
        await finish(backend, first.lease, OUTCOMES["completed"])
        assert await state_of(backend, jobs[1].id) is JobState.SCHEDULED
        assert await claim(backend) == []
        clock.advance(HOUR)
        await backend.jobs.promote(MANY)
        second = await claim_one(backend)
        assert (second.id, second.payload) == (jobs[1].id, "[2]")

    async def test_replace_keeps_a_job_that_runs_and_enqueues_if_the_key_is_free(self, backend: Backend) -> None:
        holder = await start(backend, unique(payload="[1]"))
        assert await backend.jobs.enqueue([unique(on_conflict=REPLACE, payload="[2]")]) == [holder.id]
        assert (await backend.insight.job(holder.id)).payload == "[1]"
        await start(backend, unique("w", WAITING))
        assert await backend.jobs.enqueue([unique("w", WAITING, REPLACE)]) == [True]

    async def test_replace_within_a_call_leaves_one_job_with_the_last_arguments(self, backend: Backend) -> None:
        jobs = [unique(on_conflict=REPLACE, payload=f"[{number}]") for number in range(3)]
        assert await backend.jobs.enqueue(jobs) == [True, jobs[0].id, jobs[0].id]
        more = [unique(on_conflict=REPLACE, payload=f"[{number}]") for number in range(3, 5)]
        assert await backend.jobs.enqueue([*more, unique("other")]) == [jobs[0].id, jobs[0].id, True]
        assert (await backend.insight.job(jobs[0].id)).payload == "[4]"

    async def test_replace_makes_the_head_of_an_order_key_wait_and_stay_the_head(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        head, behind = unique(order_key="x"), a_job()
        behind = msgspec.structs.replace(behind, order_key="x")
        await enqueue(backend, head, behind)
        await backend.jobs.enqueue([unique(on_conflict=REPLACE, delay=HOUR)])
        assert await claim(backend) == []
        clock.advance(HOUR)
        await backend.jobs.promote(MANY)
        leased = await claim_one(backend)
        assert leased.id == head.id
        await finish(backend, leased.lease, OUTCOMES["completed"])
        assert (await claim_one(backend)).id == behind.id

    async def test_a_large_batch_of_unique_jobs_is_enqueued_in_one_call(self, backend: Backend) -> None:
        jobs = [unique(str(number % 700)) for number in range(1000)]
        answers = await backend.jobs.enqueue(jobs)
        assert answers == [True] * 700 + [job.id for job in jobs[:300]]
        assert [job.id for job in await claim(backend)] == [job.id for job in jobs[:700]]


class TestUniqueRepeats(Conformance):
    """An enqueue whose reply was lost is repeated under the same id."""

    @pytest.mark.parametrize("on_conflict", OnConflict)
    @pytest.mark.parametrize("scope", UniqueScope)
    async def test_a_repeat_is_answered_as_known_whatever_has_happened_since(
        self, backend: Backend, scope: UniqueScope, on_conflict: OnConflict
    ) -> None:
        job = unique(scope=scope, on_conflict=on_conflict)
        holder = await start(backend, job)
        assert await backend.jobs.enqueue([job]) == [False]
        await finish(backend, holder.lease, OUTCOMES["failed"])
        assert await backend.jobs.enqueue([job]) == [False]
        await backend.jobs.enqueue([unique(scope=scope)])
        assert await backend.jobs.enqueue([job]) == [False]
        assert await state_of(backend, job.id) is JobState.FAILED

    async def test_a_repeat_of_a_replacement_gets_the_same_job_even_if_that_has_started(self, backend: Backend) -> None:
        (holder,) = await enqueue(backend, unique(scope=WAITING))
        call = unique(scope=WAITING, on_conflict=REPLACE, payload="[2]")
        assert await backend.jobs.enqueue([call]) == [holder]
        leased = await claim_one(backend)
        assert leased.payload == "[2]"
        assert await backend.jobs.enqueue([call]) == [holder]
        await finish(backend, leased.lease, OUTCOMES["completed"])
        assert await backend.jobs.enqueue([call]) == [holder]
        assert await backend.jobs.enqueue([unique(scope=WAITING)]) == [True]

    async def test_a_repeat_of_a_call_with_one_key_twice_gets_the_same_job(self, backend: Backend) -> None:
        jobs = [unique(on_conflict=REPLACE, payload=f"[{number}]") for number in range(2)]
        assert await backend.jobs.enqueue(jobs) == [True, jobs[0].id]
        await claim_one(backend)
        assert await backend.jobs.enqueue(jobs) == [False, jobs[0].id]

    async def test_a_known_job_takes_no_key(self, backend: Backend) -> None:
        known = a_job()
        await enqueue(backend, known)
        again = unique("free", PERIOD, job_id=known.id)
        assert await backend.jobs.enqueue([again, unique("free", PERIOD)]) == [False, True]
        assert await backend.jobs.enqueue([a_job(job_id=known.id), unique("other", PERIOD)]) == [False, True]

    async def test_jobs_are_inserted_in_the_order_of_the_call_though_the_first_with_a_key_is_known(
        self, backend: Backend
    ) -> None:
        (known,) = await enqueue(backend, a_job())
        first, second = unique("k", order_key="o"), msgspec.structs.replace(a_job(), order_key="o")
        assert await backend.jobs.enqueue([unique("k", job_id=known), first, second]) == [False, True, True]
        assert await state_of(backend, first.id) is JobState.READY
        assert await state_of(backend, second.id) is JobState.BLOCKED

    async def test_concurrent_repeats_of_one_call_make_one_job(self, backend: Backend) -> None:
        job = unique()
        answers = await asyncio.gather(*(backend.jobs.enqueue([job]) for _ in range(6)))
        assert sorted(answer for (answer,) in answers) == [False] * 5 + [True]
