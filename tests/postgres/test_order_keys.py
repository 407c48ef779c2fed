"""The lines of order keys on PostgreSQL: who waits for whom, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from tests.postgres.callers import KINDS, Caller, calling
from tests.servers.postgres import parts_of
from tests.system.stores import check_lines

from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.errors import StoreUnavailable
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import OUTCOMES, a_job, claim, claim_one, enqueue, finish, state_of
from holdfast.testing.conformance.order_keys import hold_head, keyed, states


@pytest.fixture
def connection(backend: Backend, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as connection:
        yield connection


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def caller(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Caller]:
    async with calling(request.param, parts_of(url)[0]) as caller:
        yield caller


async def _drain(backend: Backend) -> int:
    done = 0
    while jobs := await claim(backend):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        done += len(jobs)
    return done


async def test_a_line_that_is_empty_leaves_nothing_behind(backend: Backend, connection: psycopg.Connection, url: str):
    schema = parts_of(url)[1]
    await enqueue(backend, *(keyed(f"customer-{number % 70}") for number in range(200)))
    check_lines(connection.execute, f"{schema}.")
    assert await _drain(backend) == 200
    for table in ("key_head", "blocked"):
        assert connection.execute(f"table {schema}.{table}".encode()).fetchall() == []


async def test_more_keys_than_the_server_could_lock_go_in_at_once(backend: Backend):
    """Its table of locks has room for some thousands; rows of lines need none of it."""
    jobs = [keyed(f"customer-{number}") for number in range(12_000)]
    assert all(await backend.jobs.enqueue([*jobs, *(keyed(f"customer-{number}") for number in range(0, 12_000, 2))]))
    first = await claim(backend, 12_000)
    assert [job.id for job in first] == [job.id for job in jobs]
    await backend.jobs.finish([Finish(job.lease, Completed()) for job in first])
    assert len(await claim(backend, 12_000)) == 6_000


async def test_the_end_of_a_head_waits_for_who_is_enqueueing_to_its_line_and_strands_nobody(
    backend: Backend, caller: Caller
):
    job, _ = await hold_head(backend, waiting=0)
    following = keyed()
    await caller.begin()
    assert await backend.transactions.join(caller.using).enqueue([following]) == [True]
    ending = asyncio.ensure_future(finish(backend, job.lease, Completed()))
    done, _ = await asyncio.wait({ending}, timeout=0.3)
    assert not done
    await caller.commit()
    assert await ending is Verdict.DONE
    assert [each.id for each in await claim(backend)] == [following.id]


async def test_a_completion_in_the_callers_transaction_brings_up_the_next(backend: Backend, caller: Caller):
    job, others = await hold_head(backend, waiting=2)
    await caller.begin()
    verbs = backend.transactions.join(caller.using)
    assert await verbs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
    assert await verbs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
    assert await states(backend, *others) == [JobState.BLOCKED, JobState.BLOCKED]
    await caller.commit()
    assert await states(backend, *others) == [JobState.READY, JobState.BLOCKED]


async def test_a_stricter_transaction_whose_snapshot_of_the_line_is_old_is_refused(
    backend: Backend, connection: psycopg.Connection
):
    connection.execute("begin isolation level repeatable read")
    connection.execute("select 1")
    job, _ = await hold_head(backend, waiting=0)
    with pytest.raises(StoreUnavailable):
        await backend.transactions.join(connection).enqueue([keyed()])
    connection.execute("rollback")
    connection.execute("begin isolation level repeatable read")
    connection.execute("select 1")
    await enqueue(backend, keyed())
    with pytest.raises(StoreUnavailable):
        backend.transactions.complete(job.lease, None, using=connection)
    connection.execute("rollback")
    assert await finish(backend, job.lease, Completed()) is Verdict.DONE
    assert len(await claim(backend)) == 1


class Heard:
    """The names of the statements that a backend asks for."""

    def __init__(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(backend, PostgresBackend)
        self.names: list[str] = []
        text = backend._statements.text

        def tell(name: str) -> bytes:
            self.names.append(name)
            return text(name)

        monkeypatch.setattr(backend._statements, "text", tell)

    def since(self) -> list[str]:
        names, self.names = self.names, []
        return names


async def test_a_batch_with_one_head_is_written_as_a_whole(backend: Backend, monkeypatch: pytest.MonkeyPatch):
    """It is found by the statement that would have completed the others, and nothing is written until the line is."""
    plain, head = a_job(), keyed()
    await enqueue(backend, plain, head)
    jobs = await claim(backend)
    heard = Heard(backend, monkeypatch)
    assert await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs]) == [Verdict.DONE] * 2
    assert heard.since() == ["complete", "complete", "lock_order_keys", "bring_up"]
    assert await states(backend, plain.id, head.id) == [JobState.COMPLETED, JobState.COMPLETED]


@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_what_comes_up_below_the_floor_is_found_at_once(backend: Backend, end: str):
    """Claims have gone past its turn while it waited."""
    job, (following,) = await hold_head(backend, waiting=1)
    for _ in range(3):
        await enqueue(backend, a_job())
        other = await claim_one(backend)
        await finish(backend, other.lease, Completed())
    await finish(backend, job.lease, OUTCOMES[end])
    assert (await claim_one(backend)).id == following


async def test_the_way_of_a_job_through_a_line_survives_a_repeat_of_every_call(
    backend: Backend, connection: psycopg.Connection, url: str
):
    jobs: list[NewJob] = [keyed() for _ in range(3)]
    for _ in range(2):
        await backend.jobs.enqueue(jobs)
    for job in jobs:
        held = await claim_one(backend)
        assert held.id == job.id
        for _ in range(2):
            assert await finish(backend, held.lease, Completed()) is Verdict.DONE
            assert await backend.jobs.enqueue([job]) == [False]
            check_lines(connection.execute, f"{parts_of(url)[1]}.")
    assert await claim(backend) == []
    assert await state_of(backend, jobs[-1].id) is JobState.COMPLETED
