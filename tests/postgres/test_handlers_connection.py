"""The connection of an async handler: its transaction begins and ends with a statement, and is not its own to end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Trace, TransactionStatus

from holdfast.backends.postgres.connecting import connect, drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict
from holdfast.testing.conformance.base import hold_one
from holdfast.testing.conformance.streams.base import consuming

LIMIT = timedelta(seconds=20)
FAILING = b"select case when %(n)s::integer = 1 then 1 else ('no ' || %(n)s::text)::integer end"


@pytest.fixture
async def connection(url: str) -> AsyncIterator[HandlersConnection]:
    connection = await connect(PostgresLocation.parse(url))
    assert isinstance(connection, HandlersConnection)
    await connection.execute("create temporary table effect (n integer)")
    yield connection
    drop(connection)


async def effects(connection: HandlersConnection) -> int:
    found = await (await connection.execute("select count(*) from effect")).fetchone()
    assert found is not None
    return int(found[0])


async def test_statements_that_begin_and_end_a_transaction_return_their_rows(connection: HandlersConnection):
    assert await connection.begin_with(b"select %(n)s::integer", {"n": 7}) == [(7,)]
    assert connection.pgconn.transaction_status == TransactionStatus.INTRANS
    await connection.execute("insert into effect values (1)")
    assert await connection.commit_with(b"select %(n)s::integer", {"n": 8}) == [(8,)]
    assert connection.pgconn.transaction_status == TransactionStatus.IDLE
    assert await effects(connection) == 1


async def test_a_last_statement_that_fails_keeps_the_commit_from_being_done(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    await connection.execute("insert into effect values (1)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="no 2"):
        await connection.commit_with(FAILING, {"n": 2})
    assert connection.pgconn.transaction_status == TransactionStatus.INERROR
    await connection.end(b"rollback")
    assert await effects(connection) == 0
    assert await connection.begin_with(FAILING, {"n": 1}) == [(1,)]


async def test_a_commit_that_the_server_has_turned_into_a_rollback_is_told(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    with pytest.raises(psycopg.errors.DivisionByZero):
        await connection.execute("select 1 / 0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        await connection.end(b"commit")
    assert connection.pgconn.transaction_status == TransactionStatus.IDLE


async def test_it_takes_one_round_trip_to_begin_and_one_to_end(backend: Backend, tmp_path: Path):
    grant = await consuming(backend, "a")
    said = tmp_path / "said"
    async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
        session: psycopg.AsyncConnection[object] = transaction.connection  # the pool gives it out again
    with said.open("wb") as traced:
        session.pgconn.trace(traced.fileno())
        session.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            assert transaction.connection is session
            await session.execute("select 1")
            assert await transaction.commit(grant, Commit(0, 1)) is CommitVerdict.DONE
        session.pgconn.untrace()
    assert said.read_text().count("ReadyForQuery") == 3  # with the handler's own


@pytest.mark.parametrize("what", ["commit", "rollback"])
async def test_a_handler_that_would_end_its_transaction_is_told_how_it_ends(backend: Backend, what: str):
    job = await hold_one(backend)
    async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
        with pytest.raises(psycopg.ProgrammingError, match="handlers must not call"):
            await getattr(transaction.connection, what)()
        assert await transaction.complete(job.lease, None) is Verdict.DONE


async def test_a_savepoint_that_is_rolled_back_takes_nothing_but_its_own_part_with_it(backend: Backend):
    """After a rollback the driver drops every prepared statement of the session."""
    grant = await consuming(backend, *"ab")
    for after in (0, 1):
        async with backend.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            connection = transaction.connection
            for number in range(5):  # so often that the driver prepares it
                await connection.execute("select %s::integer", (number,))
            with pytest.raises(psycopg.errors.DivisionByZero):
                async with connection.transaction():
                    await connection.execute("select 1 / 0")
            assert await transaction.commit(grant, Commit(after, after + 1)) is CommitVerdict.DONE
    assert await backend.streams.consumers.verify(grant) == 2


async def test_a_pipeline_that_is_still_open_is_told(connection: HandlersConnection):
    await connection.begin_with(b"select 1", {})
    async with connection.pipeline():
        with pytest.raises(psycopg.ProgrammingError, match="pipeline"):
            await connection.commit_with(b"select 1", {})
    assert await connection.commit_with(b"select 2", {}) == [(2,)]


@pytest.mark.parametrize("prepare", ["auto", "always"])
@pytest.mark.parametrize("for_verbs", [True, False])
async def test_the_server_notices_a_client_that_vanished(url: str, for_verbs: bool, prepare: str):
    session = await connect(PostgresLocation.parse(f"{url}&prepare={prepare}"), for_verbs=for_verbs)
    found = await (await session.execute("show tcp_keepalives_idle")).fetchone()
    drop(session)
    assert found == ("10",)
