"""A transaction that a handler holds open, and what it writes through."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from holdfast.backends.sql.steps import Ready
from holdfast.backends.sqlite.connection import Connection, Parameters
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.deadlines import Deadline, Deadlines
from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.fence_check import SqliteFenceCheck
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.verbs import consumers
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.errors import ConfigError, HoldfastError, StoreError, TransactionExpired
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

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


class State(Enum):
    """Where a handler's transaction stands.

    ```text
       WAITING ──▶ OPEN ──▶ ENDED      committed, or rolled back by its handler
          │          ├────▶ EXPIRED    rolled back because it lasted too long
          ▼          └────▶ UNDONE     rolled back by SQLite itself, at an error inside it
       UNWANTED   its handler was cancelled while it waited: rolled back as soon as it is begun
    ```

    Whoever takes it out of OPEN, under the lock, is the one who lets the next writer through the gate.
    """

    WAITING = "waiting"
    OPEN = "open"
    ENDED = "ended"
    EXPIRED = "expired"
    UNDONE = "undone"
    UNWANTED = "unwanted"


class OpenTransaction:
    """A transaction that a handler holds open on a session of its own."""

    def __init__(
        self,
        session: ConnectionThread,
        gate: WriteQueue,
        holding: SqliteFenceCheck,
        *,
        limit: timedelta,
        deadlines: Deadlines,
    ) -> None:
        self.session = session
        self._gate = gate
        self._holding = holding
        self._limit = limit
        self._deadlines = deadlines
        self._deadline: Deadline | None = None
        self._lock = threading.Lock()
        self._state = State.WAITING
        self.is_entered = False
        """Whether its handler is inside the block: its calls join it or, once the transaction is over, are refused."""

    @property
    def is_open(self) -> bool:
        """Whether statements may still be run."""
        return self._state is State.OPEN

    def belongs_to(self, gate: WriteQueue) -> bool:
        """Tell whether this is a transaction of the backend with this gate."""
        return self._gate is gate

    def begin(self, connection: Connection) -> None:
        """Take the write lock, see that the job or share is held, and let the time run."""
        self._gate.enter()
        try:
            connection.begin()
            self._holding.check(connection.tx())
            self._open()
        except BaseException:
            self._roll_back(connection)  # whatever it was: a transaction left open would keep every writer waiting
            raise

    def _open(self) -> None:
        with self._lock:
            if self._state is State.UNWANTED:
                message = "nobody waits for this transaction any more"
                raise ConfigError(message)
            self._deadline = self._deadlines.set(self._limit, self.expire)
            self._state = State.OPEN

    def disown(self) -> None:
        """Give up a transaction for which nobody waits any more, whether it was begun meanwhile or not."""
        with self._lock:
            if self._state is State.WAITING:
                self._state = State.UNWANTED
                return
        self.session.submit(self.abandon)

    def commit(self, connection: Connection) -> None:
        """Commit and let the next writer through; raise if it is over already."""
        self._note_undone(connection)
        if not self._shut(State.ENDED):
            raise self._over()
        try:
            connection.commit()
        finally:
            self._gate.leave()

    def abandon(self, connection: Connection) -> None:
        """Roll back, unless it is over already."""
        if self._shut(State.ENDED):
            self._roll_back(connection)

    def expire(self) -> None:
        """Roll back because the limit has passed; whoever waits for the write lock goes on."""
        with self._lock:
            if self._state is not State.OPEN:
                return
            self._state = State.EXPIRED
            self.session.interrupt()
            self.session.submit(self._roll_back)  # under the lock: before what the session's next user asks

    def guard(self, work: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """Return `work` refusing to run once the transaction is over, and with errors that explain themselves."""

        def guarded(connection: Connection) -> T:
            if not self.is_open:
                raise self._over()
            try:
                result = work(connection)
            except sqlite3.Error as error:
                self._note_undone(connection)
                if self._state is State.EXPIRED:
                    raise self._over() from error
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:  # only this is: see `Connection`
                    message = (
                        "begin, commit and rollback are Holdfast's here: leave the `with` block to commit, raise to "
                        "roll back, or use a savepoint"
                    )
                    raise ConfigError(message) from error
                raise
            self._note_undone(connection)
            return result

        return guarded

    def _note_undone(self, connection: Connection) -> None:
        """Notice that SQLite has rolled back by itself: what came after would commit on its own, effect by effect."""
        if not connection.raw.in_transaction and self._shut(State.UNDONE):
            self._gate.leave()

    def _shut(self, state: State) -> bool:
        """Take it out of OPEN; False if somebody has done so before."""
        with self._lock:
            if self._state is not State.OPEN:
                return False
            self._state = state
        if self._deadline is not None:
            self._deadline.drop()
        return True

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        finally:
            self._gate.leave()

    def _over(self) -> HoldfastError:
        if self._state is State.EXPIRED:
            return TransactionExpired(
                f"{self._holding.name}: its transaction held the one write lock of SQLite longer than "
                f"{self._limit.total_seconds():g} s and was rolled back. Do slow work before the transaction and write "
                f"only the effect inside it; or the limit, {self._holding.limit}"
            )
        if self._state is State.UNDONE:
            return StoreError(
                f"{self._holding.name}: SQLite has rolled its transaction back at an error inside it (a full disk, "
                "or a statement that asks for a rollback). Nothing of it was written: let the error end the attempt"
            )
        return ConfigError("this transaction has ended: use its connection inside the `with` block only")


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


def _run_completion(lease: Lease, result: str | None, notify: Callable[[], None]) -> Callable[[Connection], Verdict]:
    def run(connection: Connection) -> Verdict:
        ready = Ready()
        verdict = drive(connection.tx(), complete(SqliteJobRows(), lease, result), ready)
        if ready:
            notify()  # early: a woken worker waits for the write lock, or sees the commit by itself
        return verdict

    return run


class AsyncTransaction:
    """The port's transaction for async handlers."""

    def __init__(self, transaction: OpenTransaction, notify: Callable[[], None]) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self._notify = notify
        self.connection = AsyncConnection(transaction)

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return await self._session.run(self._transaction.guard(_run_completion(lease, result, self._notify)))


class BlockingTransaction:
    """The port's transaction for handlers in threads."""

    def __init__(self, transaction: OpenTransaction, notify: Callable[[], None]) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self._notify = notify
        self.connection = BlockingConnection(transaction)

    def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return self._session.run_blocking(self._transaction.guard(_run_completion(lease, result, self._notify)))


def _run_commit(grant: Grant, commit: Commit) -> Callable[[Connection], CommitVerdict]:
    return lambda connection: consumers.commit(connection.tx(), grant, commit)


class AsyncStreamTransaction:
    """The port's transaction for async handlers of consumers."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self.connection = AsyncConnection(transaction)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        return await self._session.run(self._transaction.guard(_run_commit(grant, commit)))


class BlockingStreamTransaction:
    """The port's transaction for handlers of consumers in threads."""

    def __init__(self, transaction: OpenTransaction) -> None:
        self._session = transaction.session
        self._transaction = transaction
        self.connection = BlockingConnection(transaction)

    def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        return self._session.run_blocking(self._transaction.guard(_run_commit(grant, commit)))
