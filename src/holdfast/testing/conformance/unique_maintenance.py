"""Unique keys of jobs that are retried by hand, deleted, enqueued concurrently, or enqueued inside a transaction."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

import pytest

from holdfast.errors import JobNotFound, UniqueConflict
from holdfast.model.conditions import OnConflict, UniqueScope
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, LeasedJob
from holdfast.store.backend import Backend
from holdfast.store.values import Cancellation, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    MANY,
    OUTCOMES,
    Conformance,
    EffectTable,
    MakeBackend,
    a_job,
    claim,
    enqueue,
    finish,
    hold_one,
    state_of,
)
from holdfast.testing.conformance.unique import (
    HOUR,
    KEEP,
    PERIOD,
    RAISE,
    REPLACE,
    TICK,
    UNFINISHED,
    WAITING,
    number_of_jobs,
    start,
    unique,
)

NOTHING_KEPT = Retention(timedelta(0), timedelta(0), timedelta(0), None)


class TestUniqueRetry(Conformance):
    """A manual retry of an ended job."""

    @pytest.mark.parametrize("end", ["failed", "cancelled"])
    @pytest.mark.parametrize("scope", UniqueScope)
    async def test_a_retried_job_has_its_key_again(self, backend: Backend, scope: UniqueScope, end: str) -> None:
        holder = await start(backend, unique(scope=scope))
        await finish(backend, holder.lease, OUTCOMES[end])
        assert await backend.jobs.retry(holder.id)
        assert await backend.jobs.enqueue([unique(scope=scope)]) == [holder.id]

    @pytest.mark.parametrize("scope", [WAITING, UNFINISHED])
    async def test_a_retry_is_refused_while_another_job_holds_the_key(
        self, backend: Backend, scope: UniqueScope
    ) -> None:
        first = await start(backend, unique(scope=scope))
        await finish(backend, first.lease, OUTCOMES["failed"])
        (second,) = await enqueue(backend, unique(scope=scope))
        with pytest.raises(UniqueConflict, match=second) as caught:
            await backend.jobs.retry(first.id)
        assert (caught.value.job_id, caught.value.unique_key) == (second, "k")
        assert await state_of(backend, first.id) is JobState.FAILED
        assert await backend.jobs.cancel(second, "") is Cancellation.CANCELLED
        assert await backend.jobs.retry(first.id)
        assert await backend.jobs.enqueue([unique(scope=scope)]) == [first.id]
        with pytest.raises(UniqueConflict, match=first.id):
            await backend.jobs.retry(second)

    async def test_a_key_held_for_a_period_does_not_prevent_a_retry(self, backend: Backend, clock: ManualClock) -> None:
        first = await start(backend, unique(scope=PERIOD))
        await finish(backend, first.lease, OUTCOMES["failed"])
        clock.advance(HOUR)
        (second,) = await enqueue(backend, unique(scope=PERIOD))
        assert await backend.jobs.retry(first.id)
        assert await backend.jobs.enqueue([unique(scope=PERIOD)]) == [second]


class TestUniquePrune(Conformance):
    """Keys of jobs that are deleted."""

    async def test_with_its_job_a_key_is_free(self, backend: Backend, clock: ManualClock) -> None:
        for name in ("pruned", "deleted"):
            holder = await start(backend, unique(name))
            await finish(backend, holder.lease, OUTCOMES["completed"])
            clock.advance(TICK)
            if name == "pruned":
                assert await backend.jobs.prune(NOTHING_KEPT, MANY) == 1
            else:
                assert await backend.jobs.delete([holder.id], set(JobState), timedelta(0)) == {holder.id: None}
            assert await backend.jobs.enqueue([unique(name, job_id=holder.id)]) == [True]  # also the id is free
            assert (await backend.insight.job(holder.id)).unique_key == name
            await backend.jobs.cancel(holder.id, "")

    async def test_a_key_that_another_job_holds_stays(self, backend: Backend, clock: ManualClock) -> None:
        first = await start(backend, unique())
        await finish(backend, first.lease, OUTCOMES["completed"])
        (second,) = await enqueue(backend, unique())
        clock.advance(TICK)
        assert await backend.jobs.prune(NOTHING_KEPT, MANY) == 1
        assert await backend.jobs.enqueue([unique()]) == [second]

    async def test_a_period_outlasts_its_job(self, backend: Backend, clock: ManualClock) -> None:
        holder = await start(backend, unique(scope=PERIOD))
        await finish(backend, holder.lease, OUTCOMES["completed"])
        clock.advance(TICK)
        assert await backend.jobs.prune(NOTHING_KEPT, MANY) == 1
        assert await backend.jobs.enqueue([unique(scope=PERIOD)]) == [holder.id]
        clock.advance(HOUR)
        await backend.jobs.prune(NOTHING_KEPT, MANY)
        assert await backend.jobs.enqueue([unique(scope=PERIOD)]) == [True]


class TestUniqueConcurrency(Conformance):
    """Concurrent callers."""

    @pytest.mark.parametrize("on_conflict", [KEEP, REPLACE])
    async def test_concurrent_callers_all_get_one_job(
        self, backend: Backend, make_backend: MakeBackend, on_conflict: OnConflict
    ) -> None:
        other = await make_backend() if backend.capabilities.shared else backend
        jobs = [[unique(str(key), on_conflict=on_conflict) for key in range(5)] for _ in range(12)]
        for index, call in enumerate(jobs):
            call.sort(key=lambda job: hash((index, job.id)))  # each in another order
        answers = await asyncio.gather(
            *((backend if index % 2 else other).jobs.enqueue(call) for index, call in enumerate(jobs))
        )
        got: dict[str, set[str]] = {}
        for call, given in zip(jobs, answers, strict=True):
            for job, answer in zip(call, given, strict=True):
                assert job.conditions is not None
                assert job.conditions.unique is not None
                got.setdefault(job.conditions.unique.key, set()).add(job.id if answer is True else str(answer))
        assert sorted(len(ids) for ids in got.values()) == [1] * 5
        assert await number_of_jobs(backend) == 5


class TestUniqueTransactions(Conformance):
    """Inside a handler's transaction, and inside the caller's."""

    needs: ClassVar[frozenset[str]] = frozenset({"commits_effects"})

    async def test_a_rollback_frees_the_key(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await hold_one(backend)
        inside = unique()
        with pytest.raises(ValueError, match="handler"):
            async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)):
                assert await backend.jobs.enqueue([inside]) == [True]
                assert await backend.jobs.enqueue([unique()]) == [inside.id]
                message = "handler"
                raise ValueError(message)
        with pytest.raises(JobNotFound):
            await backend.insight.job(inside.id)
        assert await backend.jobs.enqueue([unique()]) == [True]

    async def test_a_conflict_that_was_caught_leaves_the_transaction_usable(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        (holder,) = await enqueue(backend, unique())
        job = await _other(backend)
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            with pytest.raises(UniqueConflict, match=holder):
                await backend.jobs.enqueue([unique("free", PERIOD), unique(on_conflict=RAISE)])
            await transaction.complete(job.lease, None)
        assert await state_of(backend, job.id) is JobState.COMPLETED
        assert await backend.jobs.enqueue([unique("free", PERIOD)]) == [True]


class TestUniqueAfterTheEnd(Conformance):
    """A call that follows the completion inside the transaction sees it."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    async def test_a_job_that_replaces_itself_keeps_running(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await start(backend, unique(payload="[1]"))
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            assert await backend.jobs.enqueue([unique(on_conflict=REPLACE, payload="[2]")]) == [job.id]
            await transaction.complete(job.lease, None)
            assert await backend.jobs.enqueue([unique(job_id=new_id())]) == [True]
        assert await state_of(backend, job.id) is JobState.COMPLETED


async def _other(backend: Backend) -> LeasedJob:
    """Return a running job of another task."""
    await enqueue(backend, a_job(task="other"))
    (job,) = await claim(backend, tasks=["other"])
    return job
