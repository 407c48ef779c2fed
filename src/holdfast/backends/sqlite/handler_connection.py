"""The connection that a handler uses in its transaction on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast.backends.sqlite.connection import Connection, Parameters
from holdfast.backends.sqlite.connection_thread import ConnectionThread


class Rows:
    """The result of a statement in a handler's transaction, read completely."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows: list[Any] = cursor.fetchall()
        self._next = 0
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid
        self.description = cursor.description

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def fetchall(self) -> list[Any]:
        """Return the rows not yet fetched."""
        rows, self._next = self._rows[self._next :], len(self._rows)
        return rows

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows not yet fetched."""
        return iter(self.fetchall())


Work = Callable[[Connection], Rows]
Guarded = Callable[[Work], Work]


def _one(sql: str, parameters: Parameters) -> Work:
    return lambda connection: Rows(connection.raw.execute(sql, parameters))


def _many(sql: str, rows: Iterable[Sequence[object]]) -> Work:
    listed = list(rows)
    return lambda connection: Rows(connection.raw.executemany(sql, listed))


class AsyncConnection:
    """The connection of an async handler: like sqlite3's, but async and without transaction control."""

    def __init__(self, session: ConnectionThread, guarded: Guarded) -> None:
        self._session = session
        self._guarded = guarded

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement."""
        return await self._session.run(self._guarded(_one(sql, parameters)))

    async def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Rows:
        """Run one statement for each row."""
        return await self._session.run(self._guarded(_many(sql, rows)))


class BlockingConnection:
    """The connection of a handler that runs in a thread."""

    def __init__(self, session: ConnectionThread, guarded: Guarded) -> None:
        self._session = session
        self._guarded = guarded

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement."""
        return self._session.run_blocking(self._guarded(_one(sql, parameters)))

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Rows:
        """Run one statement for each row."""
        return self._session.run_blocking(self._guarded(_many(sql, rows)))
