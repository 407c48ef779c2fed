"""The connection that a handler uses in its transaction, where the driver blocks and has a separate thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


class Rows:
    """The result of a statement in a handler's transaction, read completely in the thread of its connection."""

    def __init__(self, cursor: Any) -> None:
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


class TransactionConnection:
    """Like the driver's connection, but without transaction control. In an async handler, the calls are awaited.

    `run` calls a function with the driver's connection, in its thread.
    """

    def __init__(self, run: Callable[[Callable[[Any], Rows]], Any]) -> None:
        self._run = run

    def execute(self, sql: str, parameters: Mapping[str, object] | Sequence[object] = ()) -> Any:
        """Run one statement; return its `Rows`."""
        return self._run(lambda raw: Rows(raw.execute(sql, parameters)))

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Any:
        """Run one statement for each row; return its `Rows`."""
        listed = list(rows)
        return self._run(lambda raw: Rows(raw.executemany(sql, listed)))
