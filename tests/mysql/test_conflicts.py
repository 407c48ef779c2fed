"""Deadlocks and lock waits: what the server gives up is repeated or named, and never half written."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.driver import VerbConnection
from holdfast.backends.sql.steps import run, value
from holdfast.errors import ConfigError, StoreUnavailable, TransactionConflict
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.steps import Steps
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, claim, enqueue, hold_one, state_of
from holdfast.testing.stores import open_store

LIMIT = timedelta(seconds=20)


def _take(first: int, second: int) -> Any:
    starts = 0

    def verb() -> Steps[int]:
        nonlocal starts
        starts += 1
        yield from run("set_turns", seq=first, turn=starts)
        yield from run("set_turns", seq=second, turn=starts)
        return starts

    return verb


async def test_of_two_verbs_that_deadlock_the_victim_is_repeated_and_both_are_done(backend: MysqlBackend):
    await enqueue(backend, a_job(), a_job())
    first, second = [job.seq for job in await claim(backend)]
    runner = backend._parts.here.runner
    for _ in range(20):  # until they have met at least once
        done = await asyncio.gather(runner.write(_take(first, second)), runner.write(_take(second, first)))
        if max(done) > 1:
            break
    assert max(done) > 1, "the verbs never met"
    assert min(done) == 1


async def test_a_row_that_another_session_keeps_locked_is_waited_for_and_then_named(backend: MysqlBackend, url: str):
    """The server undoes the statement that has waited; what the verb wrote before must not be committed."""
    job = await hold_one(backend)
    other = mysql.connect(url)

    def verb() -> Steps[None]:
        yield from run("set_turns", seq=job.seq, turn=-7)
        yield from run("leave_running", seq=job.seq)

    try:
        other.begin()
        with other.cursor() as cursor:
            cursor.execute("select * from holdfast_running where seq = %s for update", (job.seq,))
        with pytest.raises(StoreUnavailable, match="waited too long"):
            await backend._parts.here.runner.write_briefly(verb)
        other.rollback()
        await enqueue(backend, a_job())  # on the same session
        assert mysql.run(url, "select count(*) from holdfast_job where turn = -7") == [(0,)]
        assert await state_of(backend, job.id) is JobState.RUNNING
    finally:
        other.close()


async def test_a_verb_that_fails_before_its_first_request_changes_no_wait_of_its_session(backend: MysqlBackend):
    runner = backend._parts.here.runner
    with pytest.raises(KeyError, match="no such statement"):
        await runner.write_briefly(lambda: run("no such statement"))
    async with runner._pools.here.connection() as connection:
        (found,) = await connection.ask(["select @@innodb_lock_wait_timeout, @@lock_wait_timeout"])
    assert found.rows == ((connection.lock_wait, 10),)


async def test_an_error_in_the_middle_of_a_message_leaves_nothing_behind(backend: MysqlBackend):
    await enqueue(backend, a_job())
    (job,) = await claim(backend)
    runner = backend._parts.here.runner

    def verb() -> Steps[None]:
        yield from run("leave_running", seq=job.seq)
        yield from run("all_changed", count=5)

    with pytest.raises(Exception, match="Subquery returns more than 1 row"):
        await runner.write(verb)
    assert await state_of(backend, job.id) is JobState.RUNNING
    assert await runner.look(lambda: value("last_fence")) >= job.fence


@pytest.mark.parametrize("statement", ["create table other (x int)", "commit", "rollback"])
async def test_a_handler_whose_statement_ends_the_transaction_writes_nothing_after_it(
    backend: MysqlBackend, url: str, statement: str
):
    mysql.run(url, "create table effect (x int) engine = innodb")
    job = await hold_one(backend)
    with pytest.raises(ConfigError, match="ended by one of its own statements"):  # noqa: PT012
        async with backend.begin(job.lease, limit=LIMIT) as transaction, transaction.connection.cursor() as cursor:
            await cursor.execute(statement)
            await cursor.execute("insert into effect values (1)")
    assert mysql.run(url, "select count(*) from effect") == [(0,)]
    assert await state_of(backend, job.id) is JobState.RUNNING


@pytest.mark.parametrize("method", ["commit", "rollback", "begin"])
async def test_a_handler_does_not_end_its_transaction_itself(backend: MysqlBackend, method: str):
    job = await hold_one(backend)
    with pytest.raises(ConfigError, match=f"must not call {method}"):
        async with backend.begin(job.lease, limit=LIMIT) as transaction:
            await getattr(transaction.connection, method)()


async def test_after_a_deadlock_a_handler_that_goes_on_writes_nothing(backend: MysqlBackend, url: str):
    """The server has rolled back: outside of the transaction, each further statement would commit by itself."""
    mysql.run(url, "create table effect (x int primary key) engine = innodb", "insert into effect values (1), (2)")
    job = await hold_one(backend)
    other = mysql.connect(url)
    swallowed: list[Exception] = []
    try:
        with pytest.raises(TransactionConflict):  # noqa: PT012
            async with backend.begin(job.lease, limit=LIMIT) as transaction, transaction.connection.cursor() as cursor:
                await cursor.execute("update effect set x = x + 10 where x = 1")
                other.begin()
                with other.cursor() as mine:
                    for number in range(20, 60):  # the server gives up the one that has written less
                        mine.execute("insert into effect values (%s)", (number,))
                    mine.execute("update effect set x = x + 100 where x = 2")
                    waiting = asyncio.create_task(cursor.execute("update effect set x = x + 10 where x = 2"))
                    await asyncio.sleep(0.2)
                    await asyncio.to_thread(mine.execute, "update effect set x = x + 100 where x = 1")
                    other.commit()
                try:
                    await waiting
                except Exception as error:  # noqa: BLE001 - what a careless handler does
                    swallowed.append(error)
                await cursor.execute("insert into effect values (999)")
    finally:
        other.close()
    assert len(swallowed) == 1
    assert mysql.run(url, "select count(*) from effect where x = 999") == [(0,)]


async def test_two_concurrent_enqueues_of_one_id_make_one_job(backend: MysqlBackend):
    for _ in range(10):
        job = a_job()
        made = await asyncio.gather(*(backend.jobs.enqueue([a_job(), job]) for _ in range(4)))
        assert sorted(answer[1] for answer in made) == [False, False, False, True]
        assert all(answer[0] for answer in made)


async def test_workers_that_claim_and_complete_at_once_neither_wait_nor_deadlock(flavour: mysql.Flavour):
    """The reason for ranges with limits, and for rows named by key: see sql/jobs.sql."""
    with mysql.own_server(flavour) as server:  # the server counts for all sessions
        mysql.run(server.url, "create database shop")
        async with open_store(server.url + "shop") as backend:
            await backend.jobs.enqueue([a_job() for _ in range(2_000)])

            async def work(name: str) -> int:
                done = 0
                while jobs := await claim(backend, 50, worker_id=name):
                    await backend.jobs.finish([Finish(job.lease, Completed(None)) for job in jobs])
                    done += len(jobs)
                return done

            assert sum(await asyncio.gather(*(work(f"worker-{number}") for number in range(4)))) == 2_000
        names = "'Innodb_row_lock_waits', 'Innodb_deadlocks'"  # MySQL does not count deadlocks: each begins as a wait
        found = dict(mysql.run(server.url, f"show global status where variable_name in ({names})"))
    assert "Innodb_row_lock_waits" in found
    assert {int(number) for number in found.values()} == {0}


async def test_a_rescue_does_not_wait_for_a_caller_that_keeps_an_order_key_locked(backend: MysqlBackend, url: str):
    (head,) = await enqueue(backend, msgspec.structs.replace(a_job(), order_key="k"))
    (plain,) = await enqueue(backend, a_job())
    assert len(await claim(backend, lease=timedelta(seconds=5))) == 2
    other = mysql.connect(url)
    try:
        other.begin()
        await backend.join(other).enqueue([msgspec.structs.replace(a_job(), order_key="k")])
        mysql.run(url, "update holdfast_running set lease_until = 0")
        async with asyncio.timeout(5):
            rescued = await backend.jobs.rescue(None, 10)
        assert plain in {job.job_id for job in rescued}
        other.rollback()
        await backend.jobs.rescue(None, 10)
    finally:
        other.close()
    assert await state_of(backend, head) is JobState.READY


@pytest.mark.parametrize("is_followed", [False, True], ids=["alone", "followed"])
async def test_the_completion_of_an_effect_is_sent_together_with_its_commit_unless_a_job_follows(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch, is_followed: bool
):
    job = a_job() if not is_followed else msgspec.structs.replace(a_job(), order_key="k")
    await enqueue(backend, job, msgspec.structs.replace(a_job(), order_key="k"))
    lease = next(one.lease for one in await claim(backend) if one.id == job.id)
    trips: list[list[str]] = []
    ask = VerbConnection.ask

    async def record(self: VerbConnection, texts: list[str]) -> Any:
        trips.append(texts)
        return await ask(self, texts)

    monkeypatch.setattr(VerbConnection, "ask", record)
    async with backend.begin(lease, limit=LIMIT) as transaction:
        trips.clear()
        assert await transaction.complete(lease, '"done"') is Verdict.DONE
    monkeypatch.undo()
    assert trips[0][0].startswith("insert into holdfast_completed")
    assert trips[0][-1] == "commit"
    assert (len(trips) > 1) is is_followed
    assert await state_of(backend, job.id) is JobState.COMPLETED
    assert (await backend.insight.job(job.id)).result == '"done"'
