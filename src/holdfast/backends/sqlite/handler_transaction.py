"""A handler's transaction on SQLite, run by the thread of its connection.

SQLite has one write lock, so such a transaction blocks every other writer, including the lease keeper. Therefore it is
limited to a third of the lease: extension begins at half of the lease, and a whole transaction fits into the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

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
from holdfast.store.fences import FencedVerbs
from holdfast.store.handler_transaction import (
    AsyncTransaction,
    BlockingTransaction,
    FenceCheck,
    OpenTransaction,
    TransactionState,
)
from holdfast.store.steps import Place, Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict

T = TypeVar("T")
Work = Callable[[Connection], T]


class PutBack(Protocol):
    """Returns the connection to its owner; if its thread is still busy, only after that work has ended."""

    def __call__(self, *, is_free: bool) -> None:
        """Return it."""
        ...


class SqlitePlace(NamedTuple):
    """What one transaction runs on: a connection with its thread, lent until `put_back`, and the shared parts."""

    session: ConnectionThread
    queue: WriteQueue
    deadlines: Deadlines
    verbs: FencedVerbs
    became_ready: Callable[[Sequence[Place]], None]
    put_back: PutBack


class SqliteTransaction:
    """The steps of a transaction, in the thread of its connection.

    Every transition out of OPEN admits the next writer of the write queue.
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
            self._roll_back(connection)  # a transaction left open would block every writer
            raise

    def _limit(self) -> None:
        try:
            self._deadline = self._deadlines.set(self._state.limit.total_seconds(), self._expire)
        except DeadlinesClosedError as error:
            message = "the store was closed while a transaction waited for the write lock"
            raise StoreUnavailable(message) from error
        if not self._state.move(TransactionState.WAITING, TransactionState.OPEN):
            message = "the handler was cancelled while its transaction waited for the write lock"
            raise ConfigError(message)

    def _expire(self) -> None:
        if self._state.move(TransactionState.OPEN, TransactionState.EXPIRED):
            self._session.interrupt()
            self._session.submit(self._roll_back)

    def commit(self, connection: Connection) -> None:
        """Commit; raise if the transaction is already over."""
        self._note_undone(connection)
        self._state.seal()
        try:
            connection.commit()
        finally:
            self._state.state = TransactionState.ENDED
            self._queue.leave()

    def abandon(self, connection: Connection) -> None:
        """Roll back, unless the transaction is already over."""
        if self._state.move(TransactionState.OPEN, TransactionState.ENDED):
            self._roll_back(connection)

    def guarded(self, work: Work[T]) -> Work[T]:
        """Wrap `work`: it raises once the transaction is over, and errors of SQLite are explained."""

        def guarded(connection: Connection) -> T:
            self._state.check_open()
            try:
                result = work(connection)
            except sqlite3.Error as error:
                self._note_undone(connection)
                if self._state.state is TransactionState.EXPIRED:
                    raise self._state.over() from error
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

    def steps(self, steps: Steps[T]) -> Work[T]:
        """Return the work that runs a verb in the transaction."""
        return self.guarded(lambda connection: drive(connection.tx(), steps, self._state.ready))

    def stop_limit(self) -> None:
        """Stop the time limit. If it has expired, its rollback is queued in the connection's thread on return."""
        if self._deadline is not None:
            self._deadline.drop()

    def _note_undone(self, connection: Connection) -> None:
        """Detect that SQLite has rolled back by itself: each later statement would commit separately."""
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
        """Run the work of a call that joins the transaction."""
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
        # A transaction whose thread still waits for the write lock is rolled back as soon as it begins.
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
        """Run the work of a call that joins the transaction, while the handler's thread waits for it."""
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
