"""A handler's transaction on SQLite, run by the thread of its own connection.

SQLite has one write lock, so such a transaction stops every other writer, the lease keeper included. Hence its limit: a
third of the lease. Extension begins at half of the lease, so that a whole transaction fits into what is left.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

from holdfast.backends.sql.fences import FencedVerbs
from holdfast.backends.sql.handler_transaction import (
    AsyncTransaction,
    BlockingTransaction,
    FenceCheck,
    OpenTransaction,
    TransactionState,
)
from holdfast.backends.sql.steps import Place
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.handler_connection import AsyncConnection, BlockingConnection
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.concurrency.deadlines import Deadline, Deadlines, DeadlinesClosedError
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict

T = TypeVar("T")
Work = Callable[[Connection], T]


class PutBack(Protocol):
    """Returns the connection; one whose thread is not free yet, only when it is."""

    def __call__(self, *, is_free: bool) -> None:
        """Return it."""
        ...


class SqlitePlace(NamedTuple):
    """Where one transaction runs: a connection with its thread, lent until `put_back`, and what all of them share."""

    session: ConnectionThread
    queue: WriteQueue
    deadlines: Deadlines
    verbs: FencedVerbs
    became_ready: Callable[[Sequence[Place]], None]
    put_back: PutBack


class SqliteTransaction:
    """The steps of a transaction, in the thread of its connection.

    Whatever takes it out of OPEN lets the next writer through the write queue.
    """

    def __init__(
        self, state: OpenTransaction, session: ConnectionThread, queue: WriteQueue, deadlines: Deadlines
    ) -> None:
        self._state = state
        self._session = session
        self._queue = queue
        self._deadlines = deadlines
        self._deadline: Deadline | None = None

    def begin(self, connection: Connection) -> None:
        """Take the write lock, check the fence, and start the limit."""
        self._queue.enter()
        try:
            connection.begin()
            drive(connection.tx(), self._state.lock_steps(), self._state.ready)
            self._limit()
        except BaseException:
            self._roll_back(connection)  # a transaction left open would keep every writer waiting
            raise

    def _limit(self) -> None:
        try:
            self._deadline = self._deadlines.set(self._state.limit.total_seconds(), self._expire)
        except DeadlinesClosedError as error:
            message = "the store was closed while a transaction waited for its turn"
            raise StoreUnavailable(message) from error
        if not self._state.move(TransactionState.WAITING, TransactionState.OPEN):
            message = "the handler that waited for this transaction was cancelled"
            raise ConfigError(message)

    def _expire(self) -> None:
        if self._state.move(TransactionState.OPEN, TransactionState.EXPIRED):
            self._session.interrupt()
            self._session.submit(self._roll_back)

    def commit(self, connection: Connection) -> None:
        """Commit; raise if it is over already."""
        self._note_undone(connection)
        self._state.seal()
        try:
            connection.commit()
        finally:
            self._state.state = TransactionState.ENDED
            self._queue.leave()

    def abandon(self, connection: Connection) -> None:
        """Roll back, unless it is over already."""
        if self._state.move(TransactionState.OPEN, TransactionState.ENDED):
            self._roll_back(connection)

    def guarded(self, work: Work[T]) -> Work[T]:
        """Return `work` refusing to run once the transaction is over, and with errors that explain themselves."""

        def guarded(connection: Connection) -> T:
            self._state.check_open()
            try:
                result = work(connection)
            except sqlite3.Error as error:
                self._note_undone(connection)
                if self._state.state is TransactionState.EXPIRED:
                    raise self._state.over() from error
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

    def steps(self, steps: Steps[T]) -> Work[T]:
        """Return the work that runs a verb in it."""
        return self.guarded(lambda connection: drive(connection.tx(), steps, self._state.ready))

    def stop_limit(self) -> None:
        """Stop the limit. A rollback that it has begun is queued in the connection's thread when this returns."""
        if self._deadline is not None:
            self._deadline.drop()

    def _note_undone(self, connection: Connection) -> None:
        """Notice that SQLite has rolled back by itself: later statements would commit on their own, one by one."""
        if not connection.raw.in_transaction and self._state.move(TransactionState.OPEN, TransactionState.UNDONE):
            self._queue.leave()

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        finally:
            self._queue.leave()


class SqliteAsyncTransaction(AsyncTransaction):
    """A transaction of an async handler."""

    def __init__(self, place: SqlitePlace, fence: FenceCheck, limit: timedelta) -> None:
        super().__init__(fence, limit, owner=place.queue, became_ready=place.became_ready)
        self._place = place
        self._thread = SqliteTransaction(self, place.session, place.queue, place.deadlines)
        self.connection = AsyncConnection(place.session, self._thread.guarded)

    async def begin(self) -> None:  # noqa: D102 - see `AsyncTransaction`
        await self._place.session.run(self._thread.begin)

    def joining(self, work: Work[T]) -> Awaitable[T]:
        """Run work of a call that joins it."""
        return self._place.session.run(self._thread.guarded(work))

    async def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return await self._place.session.run(self._thread.steps(self._place.verbs.complete(lease, result)))

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        return await self._place.session.run(self._thread.steps(self._place.verbs.commit(grant, commit)))

    async def commit_transaction(self) -> None:  # noqa: D102
        await uncancellable(self._place.session.run(self._thread.commit))

    async def undo(self) -> None:  # noqa: D102
        # One that has not begun yet is rolled back as soon as it begins: its thread may wait for the write lock.
        if not self.move(TransactionState.WAITING, TransactionState.UNWANTED):
            await uncancellable(self._place.session.run(self._thread.abandon))

    def close(self) -> None:  # noqa: D102
        self._thread.stop_limit()
        self._place.put_back(is_free=self.state is not TransactionState.UNWANTED)


class SqliteBlockingTransaction(BlockingTransaction):
    """A transaction of a handler in a thread."""

    def __init__(self, place: SqlitePlace, fence: FenceCheck, limit: timedelta) -> None:
        super().__init__(fence, limit, owner=place.queue, became_ready=place.became_ready)
        self._place = place
        self._thread = SqliteTransaction(self, place.session, place.queue, place.deadlines)
        self.connection = BlockingConnection(place.session, self._thread.guarded)

    def begin(self) -> None:  # noqa: D102 - see `BlockingTransaction`
        self._place.session.run_blocking(self._thread.begin)

    def joining(self, work: Work[T]) -> Awaitable[T]:
        """Run work of a call that joins it, while the handler's thread waits for that."""
        return self._place.session.run(self._thread.guarded(work))

    def complete(self, lease: Lease, result: str | None) -> Verdict:
        """Write the fenced completion."""
        return self._place.session.run_blocking(self._thread.steps(self._place.verbs.complete(lease, result)))

    def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Write the fenced position."""
        return self._place.session.run_blocking(self._thread.steps(self._place.verbs.commit(grant, commit)))

    def commit_transaction(self) -> None:  # noqa: D102
        self._place.session.run_blocking(self._thread.commit)

    def undo(self, error: BaseException) -> None:  # noqa: ARG002, D102
        if not self.move(TransactionState.WAITING, TransactionState.UNWANTED):
            self._place.session.run_blocking(self._thread.abandon)

    def close(self) -> None:  # noqa: D102
        self._thread.stop_limit()
        self._place.put_back(is_free=self.state is not TransactionState.UNWANTED)
