"""Handlers' transactions on SQLite, each run by the thread of its connection; both are reused.

SQLite has one write lock, so such a transaction blocks every other writer, including the lease keeper. Therefore it is
limited to a third of the lease: extension begins at half of the lease, and a whole transaction fits into the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.execute import drive
from holdfast.concurrency.connection_thread import ConnectionThread, ConnectionThreads
from holdfast.concurrency.deadlines import Deadline, Deadlines, DeadlinesClosedError
from holdfast.concurrency.priority_lock import PriorityLock
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.isolation import Isolation
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_connection import TransactionConnection
from holdfast.store.handler_transaction import (
    FenceCheck,
    FencedVerbs,
    Opened,
    OpenTransaction,
    TransactionState,
    opened_blocking,
)
from holdfast.store.steps import Place, Steps

T = TypeVar("T")
Work = Callable[[Connection], T]
Session = ConnectionThread[Connection]


class SqliteTransactions(HandlersTransactions):
    """Opens handlers' transactions, and has what they share."""

    def __init__(
        self,
        new_session: Callable[[], Session],
        queue: PriorityLock,
        verbs: FencedVerbs,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        super().__init__(verbs)
        self.queue = queue
        self.verbs = verbs
        self.became_ready = became_ready
        self.sessions = ConnectionThreads(new_session)
        self.deadlines = Deadlines(store_thread_name("sqlite-deadlines"))

    def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[SqliteTransaction]:
        del isolation  # with one writer at a time, every transaction is serializable
        return Opened(lambda: SqliteTransaction(self, fence, limit, is_async=True))

    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractContextManager[SqliteTransaction]:
        del isolation
        return opened_blocking(lambda: SqliteTransaction(self, fence, limit, is_async=False))

    def close(self) -> None:
        """Roll back open transactions, so that no stuck handler keeps the write lock, and close the connections."""
        self.deadlines.close()
        self.sessions.close()


class SqliteTransaction(OpenTransaction):
    """A transaction in the thread of its connection, which an async handler awaits and another one waits for.

    Every transition out of OPEN admits the next writer.
    """

    def __init__(self, store: SqliteTransactions, fence: FenceCheck, limit: timedelta, *, is_async: bool) -> None:
        super().__init__(fence, limit, verbs=store.verbs, owner=store.queue, became_ready=store.became_ready)
        self._session = session = store.sessions.take()
        self._store = store
        self._deadline: Deadline | None = None
        self._run: Callable[[Work[Any]], Any] = session.run if is_async else session.run_blocking
        self._finish: Callable[[Work[Any]], Any] = (
            (lambda work: uncancellable(session.run(work))) if is_async else session.run_blocking
        )
        self.connection = TransactionConnection(lambda use: self._run(self._guarded(lambda own: use(own.raw))))

    def begin(self) -> Any:  # noqa: D102 - see `OpenTransaction`
        return self._run(self._begin)

    def end_with(self, steps: Steps[T]) -> Any:  # noqa: D102
        return self._run(self._guarded(lambda connection: drive(connection.tx(), steps, self.ready)))

    def commit_transaction(self) -> Any:  # noqa: D102
        return self._finish(self._commit)

    def undo(self, error: BaseException) -> Any:  # noqa: ARG002, D102
        return self._finish(self._abandon)

    def joining(self, work: Work[T]) -> Awaitable[T]:
        """Run the work of a call that joins the transaction; a handler in a thread waits for it meanwhile."""
        return self._session.run(self._guarded(work))

    def close(self) -> None:
        """Stop the time limit. If it has expired, its rollback is queued in the connection's thread on return."""
        if self._deadline is not None:
            self._deadline.cancel()
        put_back = self._store.sessions.put_back
        if self.state is TransactionState.UNWANTED:  # the connection's thread may still wait for the write lock
            self._session.submit(lambda _: None).add_done_callback(lambda _: put_back(self._session))
        else:
            put_back(self._session)

    def _begin(self, connection: Connection) -> None:
        """Take the write lock, check the fence, and start the limit."""
        self._store.queue.enter()
        try:
            connection.begin()
            drive(connection.tx(), self.lock_steps(), self.ready)
            self._limit()
        except BaseException:
            self._roll_back(connection)  # a transaction left open would block every writer
            raise

    def _limit(self) -> None:
        try:
            self._deadline = self._store.deadlines.set(self.limit.total_seconds(), self._expire)
        except DeadlinesClosedError as error:
            message = "the store was closed while a transaction waited for the write lock"
            raise StoreUnavailable(message) from error
        if not self.move(TransactionState.WAITING, TransactionState.OPEN):
            message = "the handler was cancelled while its transaction waited for the write lock"
            raise ConfigError(message)

    def _expire(self) -> None:
        if self.move(TransactionState.OPEN, TransactionState.EXPIRED):
            if self._session.connection is not None:
                self._session.connection.interrupt()
            self._session.submit(self._roll_back)

    def _commit(self, connection: Connection) -> None:
        """Commit; raise if the transaction is already over."""
        self._note_undone(connection)
        self.seal()
        try:
            connection.commit()
        finally:
            self.state = TransactionState.ENDED
            self._store.queue.leave()

    def _abandon(self, connection: Connection) -> None:
        """Roll back, unless the transaction is already over."""
        if self.move(TransactionState.OPEN, TransactionState.ENDED):
            self._roll_back(connection)

    def _guarded(self, work: Work[T]) -> Work[T]:
        """Wrap `work`: it raises once the transaction has ended, and errors of SQLite are explained."""

        def guarded(connection: Connection) -> T:
            self.check_open()
            try:
                result = work(connection)
            except sqlite3.Error as error:
                self._note_undone(connection)
                if self.state is TransactionState.EXPIRED:
                    raise self.over() from error
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:  # see `Connection._authorize`
                    message = (
                        "begin, commit and rollback are not allowed here: leave the `with` block to commit, raise to "
                        "roll back, or use a savepoint"
                    )
                    raise ConfigError(message) from error
                raise
            self._note_undone(connection)
            return result

        return guarded

    def _note_undone(self, connection: Connection) -> None:
        """Detect that SQLite has rolled back by itself: each later statement would commit separately."""
        if not connection.raw.in_transaction and self.move(TransactionState.OPEN, TransactionState.UNDONE):
            self._store.queue.leave()

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        finally:
            self._store.queue.leave()
