"""Transactions: effect and completion commit together or not at all."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar, get_args

import pytest

from holdfast.errors import ConfigError, JobNotFound, LeaseLost, TransactionExpired
from holdfast.model.isolation import Isolation
from holdfast.model.job import JobState, LeasedJob
from holdfast.store.backend import Backend
from holdfast.store.values import Standing, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    Conformance,
    EffectTable,
    MakeBackend,
    a_job,
    claim,
    enqueue,
    hold_one,
    in_extender,
    lease_of,
    make_stale,
    result_of,
    state_of,
)

LIMIT = timedelta(seconds=10)
SHORT = timedelta(seconds=2)


class HandlerError(Exception):
    """Raised by a handler in the middle of its transaction."""


class TestAsync(Conformance):
    """`Transactions.begin`."""

    needs: ClassVar[frozenset[str]] = frozenset({"commits_effects"})

    async def test_effect_and_completion_commit_together(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, job.id)
            assert await transaction.complete(job.lease, '"paid"') is Verdict.DONE
        assert await effects.count(job.id) == 1
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED
        assert await result_of(backend, job.id) == '"paid"'

    async def test_every_isolation_level_is_accepted(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        for isolation in get_args(Isolation):
            job = await hold_one(backend)
            async with backend.transactions.begin(job.lease, limit=LIMIT, isolation=isolation) as transaction:
                await effects.insert(transaction.connection, job.id)
                assert await transaction.complete(job.lease, None) is Verdict.DONE
            assert await effects.count(job.id) == 1

    async def test_leaving_it_normally_commits_the_effect_alone_if_nothing_was_completed(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, job.id)
        assert await effects.count(job.id) == 1
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_leaving_it_by_an_exception_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await hold_one(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, job.id)
                raise HandlerError
        assert await effects.count(job.id) == 0
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_an_exception_after_the_completion_undoes_both_or_comes_too_late_for_both(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        """A store may commit with the completion."""
        await effects.create()
        job = await hold_one(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, job.id)
                assert await transaction.complete(job.lease, None) is Verdict.DONE
                raise HandlerError
        standing = Standing.COMPLETED if await effects.count(job.id) else Standing.HELD
        assert await backend.jobs.verify(job.lease) is standing

    async def test_a_handler_that_is_cancelled_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await hold_one(backend)
        inside = asyncio.Event()

        async def handler() -> None:
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, job.id)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(handler())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await effects.count(job.id) == 0
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_it_raises_lease_lost_at_once_if_the_fence_is_stale(
        self, backend: Backend, clock: ManualClock, effects: EffectTable
    ) -> None:
        await effects.create()
        stale = await make_stale(backend, clock)
        with pytest.raises(LeaseLost):
            async with backend.transactions.begin(stale.lease, limit=LIMIT):
                pytest.fail("the body must not run")
        assert await state_of(backend, stale.id) is JobState.RUNNING

    async def test_the_lease_is_safe_while_the_transaction_is_open(
        self, backend: Backend, effects: EffectTable, clock: ManualClock
    ) -> None:
        """A concurrent rescuer waits or skips the lease; it never takes a lease between effect and completion."""
        await effects.create()
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, job.id)
            clock.advance(LEASE * 2)
            assert await transaction.complete(job.lease, None) is Verdict.DONE
        assert await backend.jobs.rescue(None, MANY) == []
        assert await effects.count(job.id) == 1

    async def test_after_limit_it_is_rolled_back_and_any_use_raises_transaction_expired(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        job = await hold_one(backend)
        with pytest.raises(TransactionExpired):
            async with backend.transactions.begin(job.lease, limit=timedelta(milliseconds=50)) as transaction:
                await effects.insert(transaction.connection, job.id)
                async with asyncio.timeout(10):
                    while True:
                        await effects.insert(transaction.connection, job.id)
                        await asyncio.sleep(0.01)
        assert await effects.count(job.id) == 0
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_calls_of_this_backends_job_store_from_the_same_task_while_it_is_open_join_it(
        self, backend: Backend
    ) -> None:
        job = await hold_one(backend)
        kept, dropped = a_job(), a_job()
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([kept]) == [True]
            assert await transaction.complete(job.lease, None) is Verdict.DONE
        other = await lease_one_in_separate_queue(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin(other.lease, limit=LIMIT):
                assert await backend.jobs.enqueue([dropped]) == [True]
                raise HandlerError
        assert await state_of(backend, kept.id) is JobState.READY
        with pytest.raises(JobNotFound):
            await backend.insight.job(dropped.id)

    async def test_after_a_rollback_jobs_can_be_enqueued_to_a_queue_that_it_first_named(self, backend: Backend) -> None:
        job = await hold_one(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin(job.lease, limit=LIMIT):
                await backend.jobs.enqueue([a_job("brand-new", task="brand-new")])
                raise HandlerError
        (job_id,) = await enqueue(backend, a_job("brand-new", task="brand-new"))
        assert [each.id for each in await claim(backend, tasks=["brand-new"])] == [job_id]


async def lease_one_in_separate_queue(backend: Backend) -> LeasedJob:
    """Enqueue a job to a separate queue and claim it, even if other jobs are ready."""
    await enqueue(backend, a_job("separate"))
    (job,) = await claim(backend, queues=["separate"])
    return job


class TestBlocking(Conformance):
    """`Transactions.begin_blocking`: the same for a handler in a thread."""

    needs: ClassVar[frozenset[str]] = frozenset({"commits_effects"})

    async def test_effect_and_completion_commit_together_in_a_thread(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        job = await hold_one(backend)

        def handler() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                effects.insert_blocking(transaction.connection, job.id)
                assert transaction.complete(job.lease, '"paid"') is Verdict.DONE

        await asyncio.to_thread(handler)
        assert await effects.count(job.id) == 1
        assert await result_of(backend, job.id) == '"paid"'

    async def test_an_exception_in_a_thread_rolls_back(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        job = await hold_one(backend)

        def handler() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                effects.insert_blocking(transaction.connection, job.id)
                assert transaction.complete(job.lease, None) is Verdict.DONE
                raise HandlerError

        with pytest.raises(HandlerError):
            await asyncio.to_thread(handler)
        assert await effects.count(job.id) == 0
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_a_stale_fence_raises_lease_lost_in_a_thread(self, backend: Backend, clock: ManualClock) -> None:
        stale = await make_stale(backend, clock)

        def handler() -> None:
            with backend.transactions.begin_blocking(stale.lease, limit=LIMIT):
                pytest.fail("the body must not run")

        with pytest.raises(LeaseLost):
            await asyncio.to_thread(handler)


class TestShared(Conformance):
    """The caller's own connection and transaction, with concurrent callers."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions", "shared"})

    async def test_a_job_enqueued_in_the_callers_own_transaction_commits_with_it(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        job = a_job()
        with effects.connect() as connection:
            assert await backend.transactions.join(connection).enqueue([job]) == [True]
            effects.insert_blocking(connection, job.id)
            connection.commit()
        assert await state_of(backend, job.id) is JobState.READY
        assert await effects.count(job.id) == 1

    async def test_a_job_enqueued_in_the_callers_own_transaction_is_rolled_back_with_it(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        job = a_job()
        with effects.connect() as connection:
            assert await backend.transactions.join(connection).enqueue([job]) == [True]
            effects.insert_blocking(connection, job.id)
            connection.rollback()
        with pytest.raises(JobNotFound):
            await backend.insight.job(job.id)
        assert await effects.count(job.id) == 0

    async def test_the_fenced_completion_is_written_in_the_callers_own_transaction(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        kept, dropped = await hold_one(backend), await hold_one(backend)
        with effects.connect() as connection:
            effects.insert_blocking(connection, kept.id)
            assert backend.transactions.complete(kept.lease, '"paid"', using=connection) is Verdict.DONE
            connection.commit()
        with effects.connect() as connection:
            effects.insert_blocking(connection, dropped.id)
            assert backend.transactions.complete(dropped.lease, None, using=connection) is Verdict.DONE
            connection.rollback()
        assert await result_of(backend, kept.id) == '"paid"'
        assert await backend.jobs.verify(dropped.lease) is Standing.HELD
        assert [await effects.count(job.id) for job in (kept, dropped)] == [1, 0]

    async def test_a_stale_fence_completes_nothing_in_the_callers_own_transaction(
        self, backend: Backend, clock: ManualClock, effects: EffectTable
    ) -> None:
        stale = await make_stale(backend, clock)
        with effects.connect() as connection:
            try:
                verdict = backend.transactions.complete(stale.lease, None, using=connection)
            except LeaseLost:
                verdict = Verdict.LOST
            connection.commit()
        assert verdict is Verdict.LOST
        assert await state_of(backend, stale.id) is JobState.RUNNING

    async def test_a_connection_outside_a_transaction_is_refused(self, backend: Backend, effects: EffectTable) -> None:
        job = await hold_one(backend)
        with effects.connect() as connection:
            connection.rollback()
            with pytest.raises(ConfigError):
                backend.transactions.join(connection)
            with pytest.raises(ConfigError):
                backend.transactions.complete(job.lease, None, using=connection)

    async def test_a_lease_that_a_transaction_holds_locked_is_skipped_and_not_answered_as_lost(
        self, backend: Backend, effects: EffectTable, make_backend: MakeBackend
    ) -> None:
        await effects.create()
        other = await make_backend()
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await effects.insert(transaction.connection, job.id)
            extending = asyncio.create_task(in_extender(other, lambda extender: extender.extend([job.lease], LEASE)))
            await asyncio.wait([extending], timeout=0.2)  # a store with one write lock makes it wait for the end
        assert (await extending).lost == []
        assert await effects.count(job.id) == 1

    async def test_a_skipped_lease_is_reported_and_not_extended_and_the_next_extension_works(
        self, backend: Backend, clock: ManualClock, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        job, free = await hold_one(backend), await hold_one(backend)
        clock.advance(LEASE - SHORT)
        async with backend.transactions.begin(job.lease, limit=LIMIT):
            extending = asyncio.create_task(
                in_extender(other, lambda extender: extender.extend([job.lease, free.lease], LEASE))
            )
            await asyncio.wait([extending], timeout=0.2)
        extension = await extending
        assert extension.skipped in ([], [job.lease])  # with one write lock it waits for the end and skips nothing
        assert (await lease_of(backend, job.id)).expires_in == (SHORT if extension.skipped else LEASE)
        assert (await lease_of(backend, free.id)).expires_in == LEASE
        again = await in_extender(other, lambda extender: extender.extend([job.lease], LEASE))
        assert (again.lost, again.skipped) == ([], [])
        assert (await lease_of(backend, job.id)).expires_in == LEASE

    async def test_after_a_callers_completion_is_rolled_back_the_extension_reports_the_lease_correctly(
        self, backend: Backend, clock: ManualClock, effects: EffectTable, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        job = await hold_one(backend)
        clock.advance(LEASE - SHORT)
        with effects.connect() as connection:
            assert backend.transactions.complete(job.lease, None, using=connection) is Verdict.DONE
            extending = asyncio.create_task(in_extender(other, lambda extender: extender.extend([job.lease], LEASE)))
            await asyncio.wait([extending], timeout=0.2)
            connection.rollback()
        extension = await extending
        assert extension.lost == []
        assert (await lease_of(backend, job.id)).expires_in == (SHORT if extension.skipped else LEASE)

    async def test_verify_waits_for_a_transaction_in_flight_that_touches_the_lease(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            verifying = asyncio.create_task(other.jobs.verify(job.lease))
            done, _ = await asyncio.wait([verifying], timeout=0.2)
            assert not done
            assert await transaction.complete(job.lease, None) is Verdict.DONE
        assert await verifying is Standing.COMPLETED

    async def test_uncommitted_writes_are_invisible_to_others(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        job, hidden = await hold_one(backend), a_job()
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await backend.jobs.enqueue([hidden])
            assert await transaction.complete(job.lease, None) is Verdict.DONE
            assert await state_of(other, job.id) is JobState.RUNNING
            with pytest.raises(JobNotFound):
                await other.insight.job(hidden.id)
        assert await state_of(other, job.id) is JobState.COMPLETED
        assert await state_of(other, hidden.id) is JobState.READY
