"""Handlers' transactions: their limit, their locks, and a handler that meddles."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.errors import ConfigError, TransactionExpired
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit
from holdfast.store.values import Standing, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import LEASE, MANY, a_job, enqueue, hold_one
from holdfast.testing.conformance.streams.base import consuming
from holdfast.testing.stores import open_store

LIMIT = timedelta(seconds=10)
SHORT = timedelta(milliseconds=200)


async def test_a_statement_that_runs_past_the_limit_is_broken_off(backend: Backend):
    job = await hold_one(backend)
    began = time.monotonic()
    with pytest.raises(TransactionExpired):
        async with backend.transactions.begin(job.lease, limit=SHORT) as transaction:
            await transaction.connection.execute("select pg_sleep(30)")
    assert time.monotonic() - began < 10
    assert await backend.jobs.verify(job.lease) is Standing.HELD


async def test_a_blocking_statement_that_runs_past_the_limit_is_broken_off(backend: Backend):
    job = await hold_one(backend)

    def handler() -> None:
        with backend.transactions.begin_blocking(job.lease, limit=SHORT) as transaction:
            transaction.connection.execute("select pg_sleep(30)")

    with pytest.raises(TransactionExpired):
        await asyncio.to_thread(handler)
    assert await backend.jobs.verify(job.lease) is Standing.HELD


async def test_a_transaction_that_was_only_left_open_past_the_limit_cannot_complete(backend: Backend):
    job = await hold_one(backend)
    with pytest.raises(TransactionExpired):
        async with backend.transactions.begin(job.lease, limit=SHORT) as transaction:
            await asyncio.sleep(0.6)
            await transaction.complete(job.lease, None)
    assert await backend.jobs.verify(job.lease) is Standing.HELD


async def test_a_handler_that_commits_by_itself_is_told_so(backend: Backend):
    job = await hold_one(backend)
    with pytest.raises(ConfigError, match="the transaction itself"):
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await transaction.connection.execute("commit")
            await transaction.complete(job.lease, None)
    assert await backend.jobs.verify(job.lease) is Standing.HELD


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize("completes", [False, True])
async def test_a_handler_that_swallows_the_error_of_a_statement_is_told_of_savepoints(
    backend: Backend, blocking: bool, completes: bool
):
    """The server undoes everything then, and says so of a COMMIT by nothing but another word."""
    job = await hold_one(backend)

    async def handler() -> None:
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            with suppress(psycopg.errors.DivisionByZero):
                await transaction.connection.execute("select 1 / 0")
            if completes:
                await transaction.complete(job.lease, None)

    def handler_in_thread() -> None:
        with backend.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
            with suppress(psycopg.errors.DivisionByZero):
                transaction.connection.execute("select 1 / 0")
            if completes:
                transaction.complete(job.lease, None)

    with pytest.raises(ConfigError, match="savepoint"):
        await (asyncio.to_thread(handler_in_thread) if blocking else handler())
    assert await backend.jobs.verify(job.lease) is Standing.HELD


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize("commits", [False, True])
async def test_a_consumer_that_swallows_the_error_of_a_statement_is_told_of_savepoints(
    backend: Backend, blocking: bool, commits: bool
):
    grant = await consuming(backend, "a")
    consumers = backend.streams.consumers

    async def handler() -> None:
        async with consumers.begin(grant, limit=LIMIT) as transaction:
            with suppress(psycopg.errors.DivisionByZero):
                await transaction.connection.execute("select 1 / 0")
            if commits:
                await transaction.commit(grant, Commit(0, 1))

    def handler_in_thread() -> None:
        with consumers.begin_blocking(grant, limit=LIMIT) as transaction:
            with suppress(psycopg.errors.DivisionByZero):
                transaction.connection.execute("select 1 / 0")
            if commits:
                transaction.commit(grant, Commit(0, 1))

    with pytest.raises(ConfigError, match="savepoint"):
        await (asyncio.to_thread(handler_in_thread) if blocking else handler())
    assert await consumers.verify(grant) == 0


async def test_a_rescuer_passes_over_a_lease_that_a_transaction_holds(url: str):
    clock = ManualClock()
    async with open_store(url, clock=clock) as backend, open_store(url, clock=clock) as other:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            clock.advance(LEASE * 2)
            assert await other.jobs.rescue(None, MANY) == []
            assert await other.jobs.rescue_worker("worker-a", "killed", MANY) == []
            assert await transaction.complete(job.lease, None) is Verdict.DONE
        assert await other.jobs.verify(job.lease) is Standing.COMPLETED


@pytest.mark.parametrize("mode", ["exclusive", "access exclusive"])  # the rescue waits; its look at the rows waits
async def test_a_rescue_that_waited_for_a_lock_leaves_the_leases_that_expired_meanwhile(
    backend: Backend, url: str, mode: str
):
    """Their holders may have waited, too: they extend first."""
    server, schema = parts_of(url)
    job = await hold_one(backend, lease=timedelta(milliseconds=800))
    await asyncio.sleep(0.9)
    with psycopg.connect(server) as blocker:
        blocker.execute(f"lock table {schema}.running in {mode} mode".encode())
        late = asyncio.create_task(backend.jobs.rescue(timedelta(minutes=1), MANY))
        await asyncio.sleep(0.5)  # more than a quarter of the lease
    assert await late == []
    assert [rescued.job_id for rescued in await backend.jobs.rescue(timedelta(minutes=1), MANY)] == [job.id]


async def test_a_hint_of_a_job_enqueued_inside_is_given_after_the_commit(backend: Backend):
    job = await hold_one(backend)
    hints: list[bool] = []
    committed = False
    stop = backend.notifier.listen(lambda: hints.append(committed))
    async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
        assert backend.transactions.is_inside()
        await enqueue(backend, a_job())
        assert await transaction.complete(job.lease, None) is Verdict.DONE
        await asyncio.sleep(0.3)  # the listener's own arrival is a hint too
        hints.clear()
        committed = True
    assert not backend.transactions.is_inside()
    assert hints == [True]
    stop()


async def test_two_enqueues_of_the_same_ids_in_opposite_order_make_each_job_once(url: str):
    """They may wait for each other: the one that the server breaks off is run again."""
    jobs = [a_job() for _ in range(250)]
    async with open_store(url) as backend, open_store(url) as other:
        first, second = await asyncio.gather(backend.jobs.enqueue(jobs), other.jobs.enqueue(jobs[::-1]))
        assert [{a, b} for a, b in zip(first, second[::-1], strict=True)] == [{True, False}] * 250
        assert (await backend.jobs.outstanding(["greet"], None)).ready == 250
