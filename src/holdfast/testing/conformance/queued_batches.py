"""Queued effects of batches: effects and ends of many jobs, all of them or none."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import pytest

from holdfast.errors import LeaseLost, StoreError
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed, Failed, Outcome
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import FAILURE, MakeBackend, state_of
from holdfast.testing.conformance.batches import completions, hold, keys
from holdfast.testing.conformance.queued_effects import (
    DONE,
    LIMIT,
    RETRIED,
    QueuesEffects,
    lose,
    meanwhile,
    put,
    seen,
)


class TestQueuedBatches(QueuesEffects):
    """Effects and ends of many jobs."""

    async def test_a_lease_that_is_stale_at_the_end_is_named_and_the_others_can_go_on(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        jobs = await hold(backend)
        lost, *kept = jobs
        with pytest.raises(LeaseLost, match="1 of 3"):
            async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
                transaction.connection.queue("RPUSH", transaction.connection.key("list"), "a", "b", "c")
                assert await transaction.finish(completions(jobs)) == [DONE] * 3
                await meanwhile(lose(backend, clock, lost, kept))
        assert transaction.held == keys(kept)  # pyright: ignore[reportPossiblyUnboundVariable]
        assert await seen(backend, "EXISTS", "list") == 0
        async with backend.transactions.begin_many([job.lease for job in kept], limit=LIMIT) as transaction:
            transaction.connection.queue("RPUSH", transaction.connection.key("list"), "b", "c")
            assert await transaction.finish(completions(kept)) == [DONE] * 2
        assert await seen(backend, "LLEN", "list") == 2
        assert [await backend.jobs.verify(job.lease) for job in jobs] == [Standing.LOST, *[Standing.COMPLETED] * 2]

    async def test_if_a_command_fails_no_job_ends(self, backend: Backend) -> None:
        await put(backend, "SET", "text", "no number")
        jobs = await hold(backend)
        with pytest.raises(StoreError):
            async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
                transaction.connection.queue("RPUSH", transaction.connection.key("list"), "a")
                transaction.connection.queue("INCR", transaction.connection.key("text"))
                ends: list[Outcome] = [Completed(), Failed(FAILURE), RETRIED]
                await transaction.finish([Finish(job.lease, end) for job, end in zip(jobs, ends, strict=True)])
        assert await seen(backend, "EXISTS", "list") == 0
        assert [await backend.jobs.verify(job.lease) for job in jobs] == [Standing.HELD] * 3

    async def test_an_end_is_decided_by_the_job_as_it_is_at_the_commit(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        done, retried, cancelled = jobs = await hold(backend)
        async with backend.transactions.begin_many([job.lease for job in jobs], limit=LIMIT) as transaction:
            transaction.connection.queue("RPUSH", transaction.connection.key("list"), "a")
            ends = [Finish(done.lease, Completed()), *(Finish(job.lease, RETRIED) for job in (retried, cancelled))]
            assert await transaction.finish(ends) == [DONE] * 3
            await other.jobs.cancel(cancelled.id, "unwanted")
        states = [await state_of(backend, job.id) for job in jobs]
        assert states == [JobState.COMPLETED, JobState.SCHEDULED, JobState.CANCELLED]
        assert await seen(backend, "LLEN", "list") == 1
