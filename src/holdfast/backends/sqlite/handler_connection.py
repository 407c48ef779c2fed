"""The connection that a handler uses in its transaction on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast.backends.sqlite.connection import Connection, Parameters


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


class TransactionConnection:
    """Like sqlite3's connection, but without transaction control. In an async handler, the calls are awaited."""

    def __init__(self, run: Callable[[Work], Any]) -> None:
        self._run = run

    def execute(self, sql: str, parameters: Parameters = ()) -> Any:
        """Run one statement; return its `Rows`."""
        return self._run(lambda connection: Rows(connection.raw.execute(sql, parameters)))

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Any:
        """Run one statement for each row; return its `Rows`."""
        listed = list(rows)
        return self._run(lambda connection: Rows(connection.raw.executemany(sql, listed)))
