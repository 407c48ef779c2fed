"""`using=`: enqueue, append and complete in the caller's transaction, over every library that has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import msgspec
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.servers import mysql
from tests.servers.missing import leave_out

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.errors import ConfigError, StoreUnavailable, TransactionConflict
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import a_job, hold_one, state_of


def place(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username, "database": parts.path.strip("/")}


def url_of(url: str, driver: str) -> str:
    return url.replace("mysql://", f"mysql+{driver}://", 1)


@asynccontextmanager
async def over_pymysql(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any], Callable[[], Any]]]:
    connection = pymysql.connect(**place(url), ssl_disabled=True)
    yield connection, connection.commit, connection.rollback
    connection.close()


@asynccontextmanager
async def over_mysqlclient(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any], Callable[[], Any]]]:
    if find_spec("MySQLdb") is None:
        leave_out(
            "mysqlclient",
            "pip builds it only with the headers of a client library; run by hand, see docs/decisions/0038",
        )
    driver = import_module("MySQLdb")
    connection = driver.connect(**place(url))
    yield connection, connection.commit, connection.rollback
    connection.close()


@asynccontextmanager
async def over_asyncmy(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any], Callable[[], Any]]]:
    connection = await asyncmy.connect(**place(url))
    await connection.begin()
    yield connection, connection.commit, connection.rollback
    await connection.ensure_closed()


@asynccontextmanager
async def over_sqlalchemy(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any], Callable[[], Any]]]:
    engine = sqlalchemy.create_engine(url_of(url, "pymysql"), connect_args={"ssl_disabled": True})
    with Session(engine) as session:
        yield session, session.commit, session.rollback
    engine.dispose()


@asynccontextmanager
async def over_async_sqlalchemy(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any], Callable[[], Any]]]:
    engine = create_async_engine(url_of(url, "asyncmy"))
    async with AsyncSession(engine) as session:
        yield session, session.commit, session.rollback
    await engine.dispose()


KINDS = {
    "pymysql": over_pymysql,
    "mysqlclient": over_mysqlclient,
    "asyncmy": over_asyncmy,
    "sqlalchemy": over_sqlalchemy,
    "sqlalchemy-async": over_async_sqlalchemy,
}


async def awaited(end: Callable[[], Any]) -> None:
    result = end()
    if asyncio.iscoroutine(result):
        await result


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def event(stream: str = "a %s 'quoted' stream") -> NewEvent:
    return NewEvent(
        id=new_id(), category="orders", stream=stream, name="paid", payload='{"100%": "\\\\"}', headers={"a": "b"}
    )


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_a_job_and_an_event_share_the_callers_transaction(
    backend: MysqlBackend, url: str, kind: Any, commits: bool
):
    new, paid = a_job(payload='{"text": "50% \\\\ \'x\' %s"}'), event()
    async with kind(url) as (using, commit, rollback):
        assert await backend.join(using).enqueue([new]) == [True]
        assert await backend.join(using).enqueue([new]) == [False]
        (appended,) = await backend.streams.join(using).append([paid])
        (again,) = await backend.streams.join(using).append([paid])
        await awaited(commit if commits else rollback)
    assert (appended.is_new, again.is_new, again.position) == (True, False, appended.position)
    found = await backend.insight.states([new.id])
    assert len(found) == commits
    if commits:
        assert (await backend.insight.job(new.id)).payload == new.payload
        (stored,) = await backend.streams.events.read_stream("orders", paid.stream, limit=5)
        assert (stored.payload, stored.stream) == (paid.payload, paid.stream)


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("kind", ["pymysql", "mysqlclient", "sqlalchemy"])
async def test_a_completion_in_the_callers_transaction(backend: MysqlBackend, url: str, kind: str, commits: bool):
    job = await hold_one(backend)
    async with KINDS[kind](url) as (using, commit, rollback):
        verdict = await asyncio.to_thread(lambda: backend.complete(job.lease, '"done"', using=using))
        await awaited(commit if commits else rollback)
    assert verdict is Verdict.DONE
    assert await state_of(backend, job.id) is (JobState.COMPLETED if commits else JobState.RUNNING)


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_an_async_handler_completes_in_the_callers_transaction(
    backend: MysqlBackend, url: str, kind: Any, commits: bool
):
    """As `await ctx.complete(using=…)` does; the second lease is stale."""
    job = await hold_one(backend)
    finish = Finish(job.lease, Completed("\"50% 'done' %s\""))
    stale = Finish(msgspec.structs.replace(job.lease, fence=job.fence + 1), Completed(None))
    async with kind(url) as (using, commit, rollback):
        assert await backend.join(using).finish([finish, stale]) == [Verdict.DONE, Verdict.LOST]
        assert await state_of(backend, job.id) is JobState.RUNNING
        await awaited(commit if commits else rollback)
    assert await state_of(backend, job.id) is (JobState.COMPLETED if commits else JobState.RUNNING)
    if commits:
        assert (await backend.insight.job(job.id)).result == "\"50% 'done' %s\""
    else:
        assert await backend.jobs.finish([finish]) == [Verdict.DONE]


@pytest.mark.parametrize("checks", [False, True], ids=["plain", "with checks of snapshots"])
async def test_a_repeatable_read_caller_completes_a_lease_that_was_extended_since_its_snapshot(
    backend: MysqlBackend, url: str, checks: bool
):
    job = await hold_one(backend)
    connection = pymysql.connect(**place(url), ssl_disabled=True)
    try:
        with connection.cursor() as cursor:
            if checks:
                if not cursor.execute("show variables like 'innodb_snapshot_isolation'"):
                    pytest.skip("the server has no checks of snapshots")
                cursor.execute("set session innodb_snapshot_isolation = on")
            cursor.execute("set session transaction isolation level repeatable read")
            cursor.execute("start transaction with consistent snapshot")
            cursor.execute("select count(*) from holdfast_running")
        mysql.run(url, "update holdfast_running set lease_until = lease_until + 1000000")
        assert await asyncio.to_thread(lambda: backend.complete(job.lease, None, using=connection)) is Verdict.DONE
        connection.commit()
    finally:
        connection.close()
    assert await state_of(backend, job.id) is JobState.COMPLETED


async def test_a_repeatable_read_caller_makes_no_other_enqueue_wait(backend: MysqlBackend, url: str):
    async with over_pymysql(url) as (using, _, rollback):
        await backend.join(using).enqueue([a_job(), a_job()])
        async with asyncio.timeout(5):
            assert await backend.jobs.enqueue([a_job(), a_job()]) == [True, True]
        await awaited(rollback)


async def test_a_callers_cursor_class_and_sql_mode_do_not_matter(backend: MysqlBackend, url: str):
    connection = pymysql.connect(**place(url), ssl_disabled=True, cursorclass=pymysql.cursors.DictCursor)
    try:
        with connection.cursor() as cursor:
            cursor.execute("set session sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY'")
            cursor.execute("set session time_zone = '+11:00'")
        job = a_job(payload="\"a\\\\b 'c'\"")
        assert await backend.join(connection).enqueue([job]) == [True]
        connection.commit()
    finally:
        connection.close()
    assert (await backend.insight.job(job.id)).payload == job.payload


@pytest.mark.parametrize("kind", ["pymysql", "mysqlclient", "asyncmy"])
async def test_a_connection_outside_of_a_transaction_is_refused(backend: MysqlBackend, url: str, kind: str):
    async with KINDS[kind](url) as (using, _, rollback):
        await awaited(rollback)
        if kind == "asyncmy":
            await using.autocommit(True)
        else:
            using.autocommit(True)
        with pytest.raises(ConfigError, match="not in a transaction"):
            await backend.join(using).enqueue([a_job()])


async def test_a_connection_to_another_database_is_refused(backend: MysqlBackend, flavour: mysql.Flavour):
    with mysql.own_database(flavour) as elsewhere:
        mysql.run(elsewhere, "create table holdfast_meta (installation varchar(36))")
        async with over_pymysql(elsewhere) as (using, _, _):
            with pytest.raises(ConfigError, match="leads to the database"):
                await backend.join(using).enqueue([a_job()])


async def test_a_connection_to_a_copy_of_the_database_on_another_server_is_refused(
    backend: MysqlBackend, url: str, flavour: mysql.Flavour
):
    ((database, installation),) = mysql.run(url, "select database(), installation from holdfast_meta")
    with mysql.own_server(flavour) as server:
        copy = server.url + database
        mysql.run(server.url, f"create database {database}")
        mysql.run(copy, f"create table holdfast_meta select '{installation}' as installation")
        async with over_pymysql(copy) as (using, _, _):
            with pytest.raises(ConfigError, match="of a different server"):
                await backend.join(using).enqueue([a_job()])


async def test_a_closed_connection_and_a_foreign_object_are_refused(backend: MysqlBackend, url: str):
    async with over_pymysql(url) as (using, _, _):
        pass
    with pytest.raises(ConfigError, match="is closed"):
        await backend.join(using).enqueue([a_job()])
    with pytest.raises(ConfigError, match="using= must be a PyMySQL"):
        backend.join(object())


async def test_a_verb_that_waits_too_long_in_a_callers_transaction_is_named(backend: MysqlBackend, url: str):
    job = await hold_one(backend)
    other = mysql.connect(url)
    try:
        async with over_pymysql(url) as (using, _, rollback):
            with using.cursor() as cursor:
                cursor.execute("set session innodb_lock_wait_timeout = 1")
            other.begin()
            with other.cursor() as mine:
                mine.execute("select * from holdfast_running where seq = %s for update", (job.seq,))
            with pytest.raises(StoreUnavailable, match="caller's connection waited too long"):
                await asyncio.to_thread(lambda: backend.complete(job.lease, None, using=using))
            await awaited(rollback)
    finally:
        other.close()
    assert await state_of(backend, job.id) is JobState.RUNNING


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_what_joins_a_distributed_transaction_ends_with_it(backend: MysqlBackend, url: str, commits: bool):
    """It cannot be refused: no server shows a session that its transaction is one."""
    job = a_job()
    name = f"'{job.id}'"
    connection = mysql.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"xa start {name}")
            assert await backend.join(connection).enqueue([job]) == [True]
            cursor.execute(f"xa end {name}")
            cursor.execute(f"xa prepare {name}")
            assert await backend.insight.states([job.id]) == []
            cursor.execute(f"xa {'commit' if commits else 'rollback'} {name}")
    finally:
        connection.close()
    assert len(await backend.insight.states([job.id])) == commits


async def test_a_verb_in_a_transaction_that_the_server_gave_up_raises_the_conflict(backend: MysqlBackend, url: str):
    job = await hold_one(backend)
    other = mysql.connect(url)
    mysql.run(url, "create table effect (x int primary key) engine = innodb", "insert into effect values (1)")
    try:
        async with over_pymysql(url) as (using, _, rollback):
            with using.cursor() as cursor:
                cursor.execute("select * from effect where x = 1 for update")
            other.begin()
            with other.cursor() as mine:
                for number in range(20, 60):
                    mine.execute("insert into effect values (%s)", (number,))
                mine.execute("select * from holdfast_running where seq = %s for update", (job.seq,))
            completing = asyncio.create_task(asyncio.to_thread(lambda: backend.complete(job.lease, None, using=using)))
            await asyncio.sleep(0.2)
            with other.cursor() as mine:
                await asyncio.to_thread(mine.execute, "update effect set x = 5 where x = 1")
            with pytest.raises(TransactionConflict):
                await completing
            await awaited(rollback)
        other.rollback()
    finally:
        other.close()
    assert await state_of(backend, job.id) is JobState.RUNNING
