"""A transaction that a handler holds open, and what it writes through."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.backends.sqlite.connection import Connection, Parameters
from holdfast.backends.sqlite.sessions import Gate, Session
from holdfast.backends.sqlite.verbs.finish import complete, standing
from holdfast.errors import ConfigError, LeaseLost, TransactionExpired
from holdfast.model.job import Lease
from holdfast.store.values import Standing, Verdict

T = TypeVar("T")


class Rows:
    """What a statement in a handler's transaction returned: all of it, already read."""

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
        """Go over the rows not yet fetched."""
        return iter(self.fetchall())


class OpenTransaction:
    """A transaction that a handler holds open on a session of its own."""

    def __init__(self, session: Session, gate: Gate, lease: Lease, limit: timedelta) -> None:
        self.session = session
        self._gate = gate
        self._lease = lease
        self._limit = limit
        self._state = "open"
        self._lock = threading.Lock()

    def belongs_to(self, gate: Gate) -> bool:
        """Tell whether this is a transaction of the backend with this gate."""
        return self._gate is gate

    def begin(self, connection: Connection) -> None:
        """Take the write lock and see that the lease is held."""
        self._gate.enter()
        try:
            connection.begin()
            if standing(connection.tx(), self._lease) is not Standing.HELD:
                raise lease_lost(self._lease)  # noqa: TRY301 - the clean-up below is for this too
        except BaseException:
            try:
                connection.rollback()  # whatever it was: a transaction left open would keep every writer waiting
            finally:
                self._gate.leave()
            raise

    def commit(self, connection: Connection) -> None:
        """Commit and let the next writer through; raise `TransactionExpired` if the limit has passed."""
        with self._lock:
            if self._state == "expired":
                raise self._expired()
            self._state = "ended"
        try:
            connection.commit()
        finally:
            self._gate.leave()

    def abandon(self, connection: Connection) -> None:
        """Roll back, unless expiry has done so."""
        with self._lock:
            if self._state != "open":
                return
            self._state = "ended"
        try:
            connection.rollback()
        finally:
            self._gate.leave()

    @property
    def is_open(self) -> bool:
        """Whether statements may still be run."""
        return self._state == "open"

    @property
    def is_expired(self) -> bool:
        """Whether it was rolled back because its limit has passed."""
        return self._state == "expired"

    def expire(self) -> None:
        """Roll back because the limit has passed; whoever waits for the write lock goes on."""
        with self._lock:
            if self._state != "open":
                return
            self._state = "expired"
        self.session.interrupt()
        try:
            self.session.run_blocking(lambda connection: connection.rollback())
        finally:
            self._gate.leave()

    def guard(self, work: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """Return `work` refusing to run once the transaction is over, and with errors that explain themselves."""

        def guarded(connection: Connection) -> T:
            if self.is_expired:
                raise self._expired()
            if not self.is_open:
                message = "this transaction has ended: use its connection inside the `with` block only"
                raise ConfigError(message)
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if self.is_expired:
                    raise self._expired() from error
                raise

        return guarded

    def _expired(self) -> TransactionExpired:
        return TransactionExpired(
            f"job {self._lease.job_id}: its transaction held the one write lock of SQLite longer than "
            f"{self._limit.total_seconds():g} s (a third of the lease) and was rolled back. Do slow work before the "
            "transaction and write only the effect inside it, or give the worker a longer lease"
        )


def _run_statement(sql: str, parameters: Parameters) -> Callable[[Connection], Rows]:
    return lambda connection: Rows(connection.raw.execute(sql, parameters))


def _run_statements(sql: str, rows: Iterable[Sequence[object]]) -> Callable[[Connection], Rows]:
    return lambda connection: Rows(connection.raw.executemany(sql, rows))


class AsyncConnection:
    """What an async handler writes through; it looks like an async sqlite3 connection without transaction control."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement."""
        return await self._session.run(self._transaction.guard(_run_statement(sql, parameters)))

    async def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Rows:
        """Run one statement for each row."""
        return await self._session.run(self._transaction.guard(_run_statements(sql, list(rows))))


class BlockingConnection:
    """The same for a handler in a thread."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement."""
        return self._session.run_blocking(self._transaction.guard(_run_statement(sql, parameters)))

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> Rows:
        """Run one statement for each row."""
        return self._session.run_blocking(self._transaction.guard(_run_statements(sql, list(rows))))


class AsyncTransaction:
    """The port's transaction for async handlers."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self.connection = AsyncConnection(transaction)

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return await self._session.run(
            self._transaction.guard(lambda connection: complete(connection.tx(), lease, result))
        )


class BlockingTransaction:
    """The port's transaction for handlers in threads."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self.connection = BlockingConnection(transaction)

    def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return self._session.run_blocking(
            self._transaction.guard(lambda connection: complete(connection.tx(), lease, result))
        )


def lease_lost(lease: Lease) -> LeaseLost:
    """Return the error for a lease that is no longer held."""
    return LeaseLost(
        f"job {lease.job_id} is no longer held under fence {lease.fence}: its lease expired or was taken away, and "
        "another worker may run it. Nothing was written"
    )
