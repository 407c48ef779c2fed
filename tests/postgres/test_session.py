"""The short way of a statement: whole answers, the server's own errors, and a session that goes on after either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres import wire
from holdfast.backends.postgres.connecting import connect, drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.wire import FastConnection

READY_FOR_QUERY = b"Z\x00\x00\x00\x05"


@pytest.fixture
async def session(url: str) -> AsyncIterator[FastConnection]:
    connection = await connect(PostgresLocation.parse(url), for_verbs=True)
    assert isinstance(connection, FastConnection)
    yield connection
    drop(connection)


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give a way to the server on which, once the event is set, an answer is cut off before it is said to be over."""
    parts = urlsplit(url)
    cut = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                end = data.find(READY_FOR_QUERY) if answers and cut.is_set() else -1
                writer.write(data if end < 0 else data[:end])
                if end >= 0:
                    break
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(pump(reader, to_server, answers=False), pump(from_server, writer, answers=True))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        yield urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}")), cut


async def _one(session: FastConnection) -> int:
    rows = await session.ask(b"select %(n)s::integer", {"n": 1})
    assert rows is not None
    return int(rows[0][0])


async def test_a_name_may_stand_in_several_places_and_a_percent_sign_is_one(session: FastConnection):
    text = b"select %(n)s::integer, %(n)s::integer + 7 %% 4, %(t)s::text"
    assert await session.ask(text, {"n": 1, "t": "ä"}) == [(1, 4, "ä")]
    assert await session.ask(text, {"n": 10**6, "t": None}) == [(10**6, 10**6 + 3, None)]


async def test_a_statement_is_prepared_once_for_each_combination_of_types(session: FastConnection):
    for number in (1, 2, 3):
        await session.ask(b"select %(n)s::bigint", {"n": number})
    for number in (10**10, 10**11):
        await session.ask(b"select %(n)s::bigint", {"n": number})
    prepared = await session.execute("select count(*) from pg_prepared_statements where name like 'holdfast%'")
    assert await prepared.fetchone() == (2,)


async def test_statements_stay_prepared_through_transactions_that_are_rolled_back(session: FastConnection):
    for _ in range(8):
        await session.execute(b"begin")
        assert await _one(session) == 1
        await session.execute(b"rollback")
    assert await _one(session) == 1


async def test_past_the_bound_a_statement_is_not_prepared(session: FastConnection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "_MOST", 1)
    assert await _one(session) == 1
    assert await session.ask(b"select 2 + %(n)s::integer", {"n": 1}) == [(3,)]
    assert len(session.prepared or ()) == 1
    assert await _one(session) == 1


async def test_a_long_question_and_a_long_answer_pass_whole(session: FastConnection):
    text = "x" * 20_000_000
    assert await session.ask(b"select length(%(t)s::text)", {"t": text}) == [(len(text),)]
    rows = await session.ask(b"select n, repeat('y', 100) from generate_series(1, 50000) as n", {})
    assert rows is not None
    assert [row[0] for row in rows] == list(range(1, 50_001))


async def test_what_the_server_says_is_raised_and_the_session_goes_on(session: FastConnection):
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await session.ask(b"select 1 / %(n)s::integer", {"n": 0})
    with pytest.raises(psycopg.errors.UndefinedTable):
        await session.ask(b"select * from there_is_none", {})
    assert await _one(session) == 1


async def test_a_cancelled_statement_is_cancelled_on_the_server_and_the_session_goes_on(session: FastConnection):
    for _ in range(2):
        asking = asyncio.create_task(session.ask(b"select pg_sleep(%(n)s::integer)", {"n": 60}))
        await asyncio.sleep(0.2)
        asking.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([asking])
        assert asking.cancelled()
        assert await _one(session) == 1


async def test_a_statement_that_is_cancelled_at_its_first_use_is_no_hindrance_to_others(session: FastConnection):
    """The server has prepared it by then, under a name that nothing else may bear."""
    for number in range(3):
        asking = asyncio.create_task(session.ask(b"select %d" % number, {}))
        await asyncio.sleep(0)  # it is sent to be prepared
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
    assert await session.ask(b"select 10", {}) == [(10,)]
    assert await session.ask(b"select 11", {}) == [(11,)]


async def test_a_second_cancellation_is_passed_on_like_the_first(
    session: FastConnection, monkeypatch: pytest.MonkeyPatch
):
    began, never = asyncio.Event(), asyncio.Event()

    async def cancel_safe(*, timeout: float) -> None:
        began.set()
        await never.wait()

    monkeypatch.setattr(session, "cancel_safe", cancel_safe)
    asking = asyncio.create_task(session.ask_all([(b"select 1", {}), (b"select pg_sleep(60)", {})], ()))
    await asyncio.sleep(0.2)
    asking.cancel()
    await began.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert session.closed  # nobody can tell what it would answer next


@pytest.mark.parametrize("together", [False, True])
async def test_what_fails_when_a_lone_statement_is_committed_is_raised_and_the_session_goes_on(
    session: FastConnection, together: bool
):
    await session.execute("create temporary table late (n integer unique deferrable initially deferred)")
    insert: tuple[bytes, dict[str, object]] = (b"insert into late values (1), (1) returning n", {})
    with pytest.raises(psycopg.errors.UniqueViolation):
        await (session.ask_all([insert], ()) if together else session.ask(*insert))
    assert await session.ask(b"select count(*) from late", {}) == [(0,)]


@pytest.mark.parametrize("together", [False, True])
async def test_an_answer_without_its_end_is_none(url: str, together: bool):
    """The server has run the statement, and the line broke before it told that this is committed."""
    async with cutting(url) as (way, cut):
        session = await connect(PostgresLocation.parse(way), for_verbs=True)
        assert isinstance(session, FastConnection)
        assert await _one(session) == 1
        cut.set()
        with pytest.raises(psycopg.OperationalError):
            await (session.ask_all([(b"select 1", {})], ()) if together else _one(session))
        assert session.closed


async def test_statements_are_read_committed_whatever_the_default_of_the_database(url: str):
    strict = f"{url}&options=-c%20default_transaction_isolation%3Dserializable"
    session = await connect(PostgresLocation.parse(strict), for_verbs=True)
    assert isinstance(session, FastConnection)
    assert await session.ask(b"select current_setting('transaction_isolation')", {}) == [("read committed",)]
    drop(session)


async def test_a_terminated_session_raises_and_is_closed(session: FastConnection, url: str):
    asking = asyncio.create_task(session.ask(b"select pg_sleep(60)", {}))
    await asyncio.sleep(0.2)
    with psycopg.connect(parts_of(url)[0], autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (session.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        await asking
    assert session.closed
