"""What the tests with real processes need of a store, whichever it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol


class Effect(NamedTuple):
    """A row of the table `effect`, which has no unique constraint."""

    job_id: str
    attempt: int
    fence: int
    pid: int


class Store(Protocol):
    """A store of its own for each test."""

    url: str
    lease: float
    """Seconds; as short as the store allows on a busy machine."""
    one_writer: bool
    """Whether an open transaction keeps every other writer of the store waiting."""

    def effects(self) -> list[Effect]:
        """Return all effects that were committed."""
        ...

    def check(self) -> None:
        """Let the store look at its own integrity."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keep every writer waiting, by this process."""
        ...


class SqliteStore:
    """A database file."""

    lease = 1.0
    one_writer = True

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        with self._connected() as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table effect (job_id text, attempt integer, fence integer, pid integer)")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=20)) as connection:
            yield connection

    def effects(self) -> list[Effect]:
        with self._connected() as connection:
            return [Effect(*row) for row in connection.execute("select job_id, attempt, fence, pid from effect")]

    def check(self) -> None:
        with self._connected() as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._connected() as connection:
            connection.execute("begin immediate")
            yield
            connection.execute("rollback")
