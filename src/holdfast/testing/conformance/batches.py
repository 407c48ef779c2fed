"""Transactions over many jobs: effects and outcomes commit together, and a stale lease does not affect the others."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, get_args

import pytest

from holdfast.errors import LeaseLost
from holdfast.model.isolation import Isolation
from holdfast.model.job import JobState, Lease, LeasedJob
from holdfast.model.outcome import Completed, Failed, Failure, Retried, Snoozed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict
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
    in_extender,
    lease_of,
    make_stale,
    result_of,
    state_of,
)
from holdfast.testing.conformance.transactions import HandlerError

LIMIT = timedelta(seconds=10)
DONE, LOST = Verdict.DONE, Verdict.LOST


async def hold(backend: Backend, count: int = 3) -> list[LeasedJob]:
    """Enqueue jobs and claim them together, for one batch."""
    await enqueue(backend, *(a_job("batch") for _ in range(count)))
    return await claim(backend, count, queues=["batch"])


def keys(jobs: Sequence[LeasedJob]) -> set[tuple[int, int]]:
    """Return the leases as a transaction over them reports them."""
    return {(job.seq, job.fence) for job in jobs}


def completions(jobs: Sequence[LeasedJob], result: str | None = None) -> list[Finish]:
    """Return the completion of each job."""
    return [Finish(job.lease, Completed(result)) for job in jobs]


class TestBatchTransaction(Conformance):
    """`Transactions.begin_many`."""

    needs: ClassVar[frozenset[str]] = frozenset({"commits_effects"})

    async def test_effects_and_completions_of_a_batch_commit_together(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        await effects.create()
        for isolation in get_args(Isolation):
            jobs = await hold(backend)
            opening = backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT, isolation=isolation)
            async with opening as transaction:
                assert transaction.held == keys(jobs)
                for job in jobs:
                    await effects.insert(transaction.connection, job.id)
                assert await transaction.finish(completions(jobs, '"paid"')) == [DONE] * 3
            assert [await effects.count(job.id) for job in jobs] == [1, 1, 1]
            assert [await result_of(backend, job.id) for job in jobs] == ['"paid"'] * 3

    async def test_an_exception_rolls_back_all_of_it(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        jobs = await hold(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, jobs[0].id)
                raise HandlerError
        assert await effects.count(jobs[0].id) == 0
        assert [await backend.jobs.verify(job.lease) for job in jobs] == [Standing.HELD] * 3

    async def test_an_exception_after_the_end_undoes_all_or_comes_too_late_for_all(
        self, backend: Backend, effects: EffectTable
    ) -> None:
        """A store may commit with the outcomes."""
        await effects.create()
        jobs = await hold(backend)
        with pytest.raises(HandlerError):
            async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
                await effects.insert(transaction.connection, jobs[0].id)
                await transaction.finish(completions(jobs))
                raise HandlerError
        standing = Standing.COMPLETED if await effects.count(jobs[0].id) else Standing.HELD
        assert [await backend.jobs.verify(job.lease) for job in jobs] == [standing] * 3

    async def test_each_job_of_a_batch_has_its_own_outcome(self, backend: Backend) -> None:
        done, failed, retried, released, untouched = jobs = await hold(backend, 5)
        wrong = Failure("ValueError", "no")
        finishes = [
            Finish(retried.lease, Retried(timedelta(seconds=5), wrong)),
            Finish(done.lease, Completed('"paid"')),
            Finish(released.lease, Snoozed(timedelta(0))),
            Finish(failed.lease, Failed(wrong)),
        ]
        async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
            assert await transaction.finish(finishes) == [DONE] * 4
        states = [await state_of(backend, job.id) for job in jobs]
        scheduled = JobState.SCHEDULED
        assert states == [JobState.COMPLETED, JobState.FAILED, scheduled, scheduled, JobState.RUNNING]
        assert await backend.jobs.verify(untouched.lease) is Standing.HELD
        await backend.jobs.promote(MANY)
        (again,) = await claim(backend, queues=["batch"])
        assert (again.id, again.used_attempts) == (released.id, 1)

    async def test_a_stale_lease_is_left_out_and_does_not_affect_the_others(
        self, backend: Backend, clock: ManualClock, effects: EffectTable
    ) -> None:
        await effects.create()
        stale = await make_stale(backend, clock)
        jobs = await hold(backend)
        leases = [jobs[0].lease, stale.lease, *(job.lease for job in jobs[1:])]
        async with backend.transactions.begin_many(leases, limit=LIMIT) as transaction:
            assert transaction.held == keys(jobs)
            for job in jobs:
                await effects.insert(transaction.connection, job.id)
            assert await transaction.finish(completions([*jobs, stale])) == [DONE, DONE, DONE, LOST]
        assert [await effects.count(job.id) for job in jobs] == [1, 1, 1]
        assert await state_of(backend, stale.id) is JobState.RUNNING

    async def test_the_fences_of_several_claims_are_compared_one_by_one(self, backend: Backend) -> None:
        """A store may look for any of the fences under any of the seqs, but must not accept such a pair."""
        (first,), (second,) = await hold(backend, 1), await hold(backend, 1)
        crossed = Lease(first.id, first.seq, second.fence)
        async with backend.transactions.begin_many([second.lease, crossed], limit=LIMIT) as transaction:
            assert transaction.held == keys([second])

    async def test_it_raises_lease_lost_if_every_lease_is_stale(self, backend: Backend, clock: ManualClock) -> None:
        stale = await make_stale(backend, clock)
        with pytest.raises(LeaseLost):
            async with backend.transactions.begin_many([stale.lease], limit=LIMIT):
                pytest.fail("the body must not run")

    async def test_every_lease_is_safe_while_the_transaction_is_open(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        jobs = await hold(backend)
        async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
            clock.advance(LEASE * 2)
            assert await transaction.finish(completions(jobs)) == [DONE] * 3
        assert await backend.jobs.rescue(None, MANY) == []

    async def test_a_batch_commits_together_in_a_thread(self, backend: Backend, effects: EffectTable) -> None:
        await effects.create()
        jobs = await hold(backend)

        def handler() -> None:
            with backend.transactions.begin_many_blocking([job.lease for job in jobs], limit=LIMIT) as transaction:
                assert transaction.held == keys(jobs)
                effects.insert_blocking(transaction.connection, jobs[0].id)
                assert transaction.finish(completions(jobs)) == [DONE] * 3

        await asyncio.to_thread(handler)
        assert await effects.count(jobs[0].id) == 1
        assert [await backend.jobs.verify(job.lease) for job in jobs] == [Standing.COMPLETED] * 3


class TestSharedBatch(Conformance):
    """Batches with concurrent callers."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions", "shared"})

    async def test_no_other_process_rescues_a_job_of_an_open_batch(
        self, backend: Backend, clock: ManualClock, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        jobs = await hold(backend)
        clock.advance(LEASE * 2)
        async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
            rescuing = asyncio.create_task(other.jobs.rescue(None, MANY))
            await asyncio.wait([rescuing], timeout=0.2)  # a store with one write lock makes it wait for the end
            assert await transaction.finish(completions(jobs)) == [DONE] * 3
        assert await rescuing == []

    async def test_leases_of_an_open_batch_are_not_answered_as_lost(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        first, *others = jobs = await hold(backend)
        async with backend.transactions.begin_many([job.lease for job in others], limit=LIMIT):
            leases = [job.lease for job in jobs]
            extending = asyncio.create_task(in_extender(other, lambda extender: extender.extend(leases, LEASE * 2)))
            await asyncio.wait([extending], timeout=0.2)
        extension = await extending
        assert extension.lost == []
        assert (await lease_of(backend, first.id)).expires_in == LEASE * 2

    async def test_two_batches_over_the_same_jobs_run_one_after_the_other(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        jobs = await hold(backend)
        leases = [job.lease for job in jobs]

        async def second() -> frozenset[tuple[int, int]]:
            async with other.transactions.begin_many(leases[::-1], limit=LIMIT) as transaction:
                return transaction.held

        async with backend.transactions.begin_many(leases, limit=LIMIT) as transaction:
            waiting = asyncio.create_task(second())
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            assert await transaction.finish(completions(jobs[:2])) == [DONE, DONE]
        assert await waiting == keys(jobs[2:])
