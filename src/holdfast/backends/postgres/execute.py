"""Run the steps of a verb on a connection: async or blocking."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from holdfast.backends.postgres.statements import Statements, transposed
from holdfast.backends.postgres.timeouts import bounded
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.backends.postgres.wire import FastConnection
from holdfast.backends.sql.steps import Ask, Asked, Each, Load, Rows, Script, Together
from holdfast.store.steps import BecameReady, Ready, Steps

T = TypeVar("T")
Frame = tuple[()] | tuple[bytes, bytes]


async def drive(
    connection: AsyncConnection[Any],
    statements: Statements,
    steps: Steps[T],
    ready: Ready,
    *,
    reply_timeout: float | None = None,
    frame: Frame = (),
) -> T:
    """Run a verb to its end. Every statement except loads and migrations must finish within `reply_timeout`.

    `frame`: the statements that go before and after those that run together.
    """
    if isinstance(connection, HandlersConnection):
        connection.has_joined = True
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, BecameReady):
                ready.add(asked)
                asked = steps.send([])
                continue
            with bounded(connection, reply_timeout if isinstance(asked, Ask | Together | Each) else None):
                if isinstance(asked, Together):
                    rows: Rows = await _answer_together(connection, statements, asked, frame)
                else:
                    rows = await _answer(connection, statements, asked)
            asked = steps.send(rows)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


async def _answer_together(
    connection: AsyncConnection[Any], statements: Statements, asked: Together, frame: Frame
) -> list[Rows]:
    if not isinstance(connection, FastConnection):  # a handler's or a caller's: one plain statement after another
        return [await _answer(connection, statements, ask) for ask in asked.asks]
    asks = [transposed(ask) if isinstance(ask, Each) else ask for ask in asked.asks]
    queries = [(statements.text(ask.statement), statements.parameters(ask.parameters)) for ask in asks]
    return [_recorded(*found) for found in zip(asks, await connection.ask_all(queries, frame), strict=True)]


async def _answer(connection: AsyncConnection[Any], statements: Statements, asked: Ask | Each | Load | Script) -> Rows:
    if isinstance(asked, Each):
        asked = transposed(asked)
    if isinstance(asked, Ask) and isinstance(connection, FastConnection):
        rows = await connection.ask(statements.text(asked.statement), statements.parameters(asked.parameters))
        return _recorded(asked, rows)
    if isinstance(asked, Script):
        await connection.execute(asked.text.encode())
        return []
    text = statements.text(asked.statement)
    # Not connection.cursor(): a caller's connection may have another cursor factory.
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(asked, Load):
            async with cursor.copy(text) as copy:
                for chunk in asked.chunks:
                    await copy.write(chunk)
                    await asyncio.sleep(0)  # writes do not block while buffers have room: let other tasks run
            return []
        await cursor.execute(text, statements.parameters(asked.parameters), binary=True)
        return _recorded(asked, await cursor.fetchall() if cursor.description else _changed(cursor))


def _recorded(ask: Ask, rows: Rows) -> Rows:
    return rows if ask.record is None else [ask.record(*row) for row in rows]


def _changed(cursor: AsyncCursor[Any] | Cursor[Any]) -> Rows:
    """Return one empty row per changed row, for a statement without columns."""
    return [()] * max(0, cursor.rowcount)


def drive_blocking(connection: Connection[Any], statements: Statements, steps: Steps[T], ready: Ready) -> T:
    """Run a verb to its end in this thread."""
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, BecameReady):
                ready.add(asked)
                asked = steps.send([])
            else:
                asked = steps.send(_answer_blocking(connection, statements, asked))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def _answer_blocking(connection: Connection[Any], statements: Statements, asked: Asked) -> Rows:
    if isinstance(asked, Together):
        return [_answer_blocking(connection, statements, ask) for ask in asked.asks]
    ask = transposed(asked) if isinstance(asked, Each) else asked
    if not isinstance(ask, Ask):
        raise TypeError(ask)  # COPY and migrations run only on the async connections of the store
    with Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statements.text(ask.statement), statements.parameters(ask.parameters), binary=True)
        return _recorded(ask, cursor.fetchall() if cursor.description else _changed(cursor))
