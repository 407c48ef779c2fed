"""A handler that catches an error of its own statement neither completes its job without the effect nor the reverse.

After a deadlock the server has rolled the transaction back, and each further statement would commit by itself. The
error may come by other ways than that of a plain statement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import asyncmy.cursors
import pymysql.cursors
import pytest
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.error_map import DriverError
from holdfast.errors import ConfigError, TransactionConflict
from holdfast.model.job import JobState, Lease
from holdfast.testing.conformance.base import hold_one, state_of

LIMIT = timedelta(seconds=20)
FIRST = "update effect set x = x + 10 where x = 1"
SECOND = "update effect set x = x + 10 where x = 2"


@contextmanager
def deadlock(url: str, session: int) -> Generator[None]:
    """Let a session that has locked the first row deadlock at the second; the server gives this session up."""
    with ThreadPoolExecutor(1) as thread:
        locked: Future[None] = Future()
        met = thread.submit(meet, url, session, locked)
        locked.result(10)
        yield
        met.result(10)


def meet(url: str, session: int, locked: Future[None]) -> None:
    other = mysql.connect(url)
    with other.cursor() as cursor:
        cursor.execute("begin")
        for number in range(20, 60):  # the server gives up the one that has written less
            cursor.execute("insert into effect values (%s)", (number,))
        cursor.execute("update effect set x = x + 100 where x = 2")
        locked.set_result(None)
        waits = f"select 1 from information_schema.innodb_trx where trx_mysql_thread_id = {session} and trx_state = 'LOCK WAIT'"  # noqa: S608, E501
        until = time.monotonic() + 10
        while not mysql.run(url, waits) and time.monotonic() < until:
            time.sleep(0.15)  # MariaDB does not refresh this list if it was read less than 0.1 s ago
        cursor.execute("update effect set x = x + 100 where x = 1")
        cursor.execute("rollback")
    other.close()


async def prepared(connection: Any) -> None:
    await (await connection.prepare(SECOND)).execute()


async def second_of_a_message(connection: Any) -> None:
    cursor = connection.cursor()
    await cursor.execute(f"select 1; {SECOND}")
    await cursor.nextset()


async def unread(connection: Any) -> None:
    await connection.cursor().execute(f"select 1; {SECOND}")


async def rows_one_by_one(connection: Any) -> None:
    cursor = connection.cursor(asyncmy.cursors.SSCursor)
    await cursor.execute("select x from effect where x in (2, 3) for update")
    await cursor.fetchall()


def second_of_a_message_blocking(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"select 1; {SECOND}")
    cursor.nextset()


def unread_blocking(connection: Any) -> None:
    connection.cursor().execute(f"select 1; {SECOND}")


def rows_one_by_one_blocking(connection: Any) -> None:
    cursor = connection.cursor(pymysql.cursors.SSCursor)
    cursor.execute("select x from effect where x in (2, 3) for update")
    cursor.fetchall()


@pytest.fixture
def effects(url: str) -> Callable[[], int]:
    """A table of effects; how many handlers have added."""
    mysql.run(url, "create table effect (x int primary key) engine = innodb", "insert into effect values (1), (2)")
    return lambda: int(mysql.run(url, "select count(*) from effect where x > 2")[0][0])


async def goes_on(transaction: Any, lease: Lease) -> None:
    await transaction.connection.execute("insert into effect values (999)")


async def completes(transaction: Any, lease: Lease) -> None:
    await transaction.complete(lease, None)


@pytest.mark.parametrize("then", [goes_on, completes])
@pytest.mark.parametrize("act", [prepared, second_of_a_message, unread, rows_one_by_one])
async def test_a_deadlock_that_an_async_handler_catches_leaves_its_job_running_and_writes_nothing(
    backend: MysqlBackend,
    url: str,
    effects: Callable[[], int],
    act: Callable[[Any], Awaitable[None]],
    then: Callable[[Any, Lease], Awaitable[None]],
):
    job = await hold_one(backend)
    with pytest.raises(TransactionConflict):  # noqa: PT012
        async with backend.begin(job.lease, limit=LIMIT) as transaction:
            connection: Any = transaction.connection
            await connection.execute(FIRST)
            with deadlock(url, connection.thread_id()):
                with suppress(*DriverError):  # what a careless handler does
                    await act(connection)
                await then(transaction, job.lease)
    assert effects() == 0
    assert await state_of(backend, job.id) is JobState.RUNNING


@pytest.mark.parametrize("completes", [True, False])
@pytest.mark.parametrize("act", [second_of_a_message_blocking, unread_blocking, rows_one_by_one_blocking])
async def test_a_deadlock_that_a_handler_in_a_thread_catches_leaves_its_job_running_and_writes_nothing(
    backend: MysqlBackend,
    url: str,
    effects: Callable[[], int],
    act: Callable[[Any], None],
    completes: bool,
):
    job = await hold_one(backend)

    def handle() -> None:
        with backend.begin_blocking(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            connection.execute(FIRST)
            with deadlock(url, connection.thread_id()):
                with suppress(*DriverError):
                    act(connection)
                if completes:
                    transaction.complete(job.lease, None)
                else:
                    connection.execute("insert into effect values (999)")

    with pytest.raises(TransactionConflict):
        await asyncio.to_thread(handle)
    assert effects() == 0
    assert await state_of(backend, job.id) is JobState.RUNNING


@pytest.mark.parametrize("statement", ["create table effect (x int)", "select 1; commit"])
async def test_a_statement_that_ends_the_transaction_unseen_is_noticed_before_the_next_one(
    backend: MysqlBackend, effects: Callable[[], int], statement: str
):
    """A statement that fails after an implicit commit, and one whose result the handler does not read."""
    job = await hold_one(backend)

    def handle() -> None:
        with backend.begin_blocking(job.lease, limit=LIMIT) as transaction:
            with suppress(*DriverError):
                transaction.connection.execute(statement)
            transaction.complete(job.lease, None)

    with pytest.raises(ConfigError, match="ended by one of its own statements"):
        await asyncio.to_thread(handle)
    for then in goes_on, completes:
        with pytest.raises(ConfigError, match="ended by one of its own statements"):  # noqa: PT012
            async with backend.begin(job.lease, limit=LIMIT) as transaction:
                with suppress(*DriverError):
                    await transaction.connection.execute(statement)
                await then(transaction, job.lease)
    assert effects() == 0
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_a_procedure_whose_status_is_left_unread_does_no_harm(
    backend: MysqlBackend, url: str, effects: Callable[[], int]
):
    mysql.run(url, "drop procedure if exists pay")
    mysql.run(url, "create procedure pay() begin insert into effect values (7); select 1; end")
    job = await hold_one(backend)
    async with backend.begin(job.lease, limit=LIMIT) as transaction:
        await transaction.connection.execute("call pay()")
        await transaction.complete(job.lease, None)
    mysql.run(url, "drop procedure pay")
    assert effects() == 1
    assert await state_of(backend, job.id) is JobState.COMPLETED
