"""Run the steps of a verb on a connection: async or blocking."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from holdfast.backends.postgres.patience import bounded
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.steps import Ask, Asked, Load, Rows, Script, Steps

T = TypeVar("T")


async def drive(
    connection: AsyncConnection[Any], statements: Statements, steps: Steps[T], *, patience: float | None = None
) -> T:
    """Run a verb to its end. No statement may take longer than `patience`, but for what loads or migrates."""
    try:
        asked = next(steps)
        while True:
            with bounded(connection, patience if isinstance(asked, Ask) else None):
                rows = await _answer(connection, statements, asked)
            asked = steps.send(rows)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


async def _answer(connection: AsyncConnection[Any], statements: Statements, asked: Asked) -> Rows:
    if isinstance(asked, Script):
        await connection.execute(asked.text.encode())
        return []
    text = statements.text(asked.statement)
    # Not connection.cursor(): a caller's own connection may make cursors of another kind.
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(asked, Load):
            async with cursor.copy(text) as copy:
                for chunk in asked.chunks:
                    await copy.write(chunk)
            return []
        await cursor.execute(text, statements.parameters(asked.parameters), binary=True)
        return await cursor.fetchall() if cursor.description else []


def drive_blocking(connection: Connection[Any], statements: Statements, steps: Steps[T]) -> T:
    """Run a verb to its end in this thread."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_answer_blocking(connection, statements, asked))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def _answer_blocking(connection: Connection[Any], statements: Statements, asked: Asked) -> Rows:
    if isinstance(asked, Script):
        connection.execute(asked.text.encode())
        return []
    text = statements.text(asked.statement)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(asked, Load):
            with cursor.copy(text) as copy:
                for chunk in asked.chunks:
                    copy.write(chunk)
            return []
        cursor.execute(text, statements.parameters(asked.parameters), binary=True)
        return cursor.fetchall() if cursor.description else []
