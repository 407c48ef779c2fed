"""Limit keys on PostgreSQL: who waits for whom, what is left behind, and what is looked at again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import psycopg
import pytest
from tests.postgres.callers import KINDS, Caller, calling
from tests.servers.postgres import parts_of

from holdfast.model.job import JobState
from holdfast.model.limits import Limit
from holdfast.model.outcome import Completed, Failure, Retried
from holdfast.store.backend import Backend
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import MANY, claim, claim_one, enqueue, finish
from holdfast.testing.conformance.key_limits import EACH, keyed, limited, states

READY, BLOCKED, SCHEDULED = JobState.READY, JobState.BLOCKED, JobState.SCHEDULED


@pytest.fixture
def connection(backend: Backend, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        yield connection


@pytest.fixture(params=KINDS[:1], ids=lambda kind: kind.__name__)
async def caller(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Caller]:
    async with calling(request.param, parts_of(url)[0]) as caller:
        yield caller


def lock(connection: psycopg.Connection, url: str, rows: str) -> None:
    """Lock rows until the end of the transaction."""
    connection.execute(f"select 1 from {parts_of(url)[1]}.{rows} for update".encode())  # noqa: S608 - our names


async def test_keys_without_jobs_leave_nothing_behind(backend: Backend, connection: psycopg.Connection, url: str):
    await backend.queues.limit(EACH, Limit(running=2))
    await enqueue(backend, *(keyed(f"customer-{number % 70}") for number in range(300)))
    done = 0
    while jobs := await claim(backend):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        done += len(jobs)
    assert done == 300
    for table in ("limit_key", "limit_slot", "blocked"):
        assert connection.execute(f"table {parts_of(url)[1]}.{table}".encode()).fetchall() == []


async def test_a_waiting_job_that_another_session_has_locked_is_passed_over_and_looked_at_again(
    backend: Backend, connection: psycopg.Connection, url: str
):
    _, second = await limited(backend, 2)
    job = await claim_one(backend)
    with connection.transaction(force_rollback=True):
        lock(connection, url, "blocked")
        await finish(backend, job.lease, Completed())  # does not wait: that session may come to wait for the key
        assert await states(backend, second) == [BLOCKED]
    await backend.jobs.promote(MANY)
    assert await states(backend, second) == [READY]


async def test_a_callers_transaction_locks_no_key_and_its_jobs_wait_for_a_slot_after_the_commit(
    backend: Backend, caller: Caller
):
    first, second = await limited(backend, 2)
    job = await claim_one(backend)
    third = keyed()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([third]) == [True]
    await finish(backend, job.lease, Completed())
    await caller.commit()
    assert await states(backend, first, second, third.id) == [JobState.COMPLETED, READY, SCHEDULED]
    await backend.jobs.promote(MANY)
    assert await states(backend, second, third.id) == [READY, BLOCKED]


async def test_promotion_and_rescue_pass_over_a_key_that_another_session_has_locked(
    backend: Backend, connection: psycopg.Connection, url: str
):
    first, second = await limited(backend, 2)
    (other,) = await enqueue(backend, keyed("b"))
    now = Retried(timedelta(0), Failure("ValueError", "no"))
    await backend.jobs.finish([Finish(job.lease, now) for job in await claim(backend)])
    (held,) = await claim(backend)
    assert held.id == second
    with connection.transaction():
        lock(connection, url, "limit_key where limit_key = 'a'")
        assert (await backend.jobs.promote(MANY)).moved == 1
        assert await states(backend, first, other) == [SCHEDULED, READY]
        assert await backend.jobs.rescue_worker("worker-a", "killed", MANY) == []
    assert (await backend.jobs.promote(MANY)).moved == 1
    assert [each.job_id for each in await backend.jobs.rescue_worker("worker-a", "killed", MANY)] == [second]
    assert await states(backend, first, second) == [BLOCKED, READY]
