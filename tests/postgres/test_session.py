"""The short way of a statement: whole answers, the server's own errors, and a session that goes on after either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.servers.postgres import parts_of

from holdfast.backends.postgres import session as sessions
from holdfast.backends.postgres.connecting import connect, drop
from holdfast.backends.postgres.location import Location
from holdfast.backends.postgres.session import Session


@pytest.fixture
async def session(url: str) -> AsyncIterator[Session]:
    connection = await connect(Location.parse(url), for_verbs=True)
    assert isinstance(connection, Session)
    yield connection
    drop(connection)


async def _one(session: Session) -> int:
    rows = await session.ask(b"select %(n)s::integer", {"n": 1})
    assert rows is not None
    return int(rows[0][0])


async def test_a_name_may_stand_in_several_places_and_a_percent_sign_is_one(session: Session):
    text = b"select %(n)s::integer, %(n)s::integer + 7 %% 4, %(t)s::text"
    assert await session.ask(text, {"n": 1, "t": "ä"}) == [(1, 4, "ä")]
    assert await session.ask(text, {"n": 10**6, "t": None}) == [(10**6, 10**6 + 3, None)]


async def test_a_statement_is_prepared_once_for_each_combination_of_types(session: Session):
    for number in (1, 2, 3):
        await session.ask(b"select %(n)s::bigint", {"n": number})
    for number in (10**10, 10**11):
        await session.ask(b"select %(n)s::bigint", {"n": number})
    prepared = await session.execute("select count(*) from pg_prepared_statements where name like 'holdfast%'")
    assert await prepared.fetchone() == (2,)


async def test_statements_stay_prepared_through_transactions_that_are_rolled_back(session: Session):
    for _ in range(8):
        await session.execute(b"begin")
        assert await _one(session) == 1
        await session.execute(b"rollback")
    assert await _one(session) == 1


async def test_past_the_bound_a_statement_is_left_to_a_cursor(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "_MOST", 1)
    assert await _one(session) == 1
    assert await session.ask(b"select 2", {}) is None
    assert await _one(session) == 1


async def test_a_long_question_and_a_long_answer_pass_whole(session: Session):
    text = "x" * 20_000_000
    assert await session.ask(b"select length(%(t)s::text)", {"t": text}) == [(len(text),)]
    rows = await session.ask(b"select n, repeat('y', 100) from generate_series(1, 50000) as n", {})
    assert rows is not None
    assert [row[0] for row in rows] == list(range(1, 50_001))


async def test_what_the_server_says_is_raised_and_the_session_goes_on(session: Session):
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await session.ask(b"select 1 / %(n)s::integer", {"n": 0})
    with pytest.raises(psycopg.errors.UndefinedTable):
        await session.ask(b"select * from there_is_none", {})
    assert await _one(session) == 1


async def test_a_cancelled_statement_is_cancelled_on_the_server_and_the_session_goes_on(session: Session):
    for _ in range(2):
        asking = asyncio.create_task(session.ask(b"select pg_sleep(%(n)s::integer)", {"n": 60}))
        await asyncio.sleep(0.2)
        asking.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([asking])
        assert asking.cancelled()
        assert await _one(session) == 1


async def test_a_terminated_session_raises_and_is_closed(session: Session, url: str):
    asking = asyncio.create_task(session.ask(b"select pg_sleep(60)", {}))
    await asyncio.sleep(0.2)
    with psycopg.connect(parts_of(url)[0], autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (session.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        await asking
    assert session.closed
