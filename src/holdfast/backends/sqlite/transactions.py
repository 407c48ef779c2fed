"""Effect and completion in one transaction of the database file.

```text
   begin immediate ─▶ is the lease held? ─▶ the handler's statements ─▶ fenced completion ─▶ commit
        │                   │ no                    │ raises, or too long        │ stale        │
        ▼                   ▼                       ▼                            ▼              ▼
   wait at the gate     LeaseLost               rollback                  rollback, LeaseLost  done
```

SQLite has one write lock, so such a transaction stops every other writer, the extending threads included. Hence the
limit: a third of the lease. Extension begins at half of the lease, so that a whole transaction fits into what is left.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta

from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.fence_check import SqliteFenceCheck, holding_job, holding_share
from holdfast.backends.sqlite.open_transaction import (
    AsyncStreamTransaction,
    AsyncTransaction,
    BlockingStreamTransaction,
    BlockingTransaction,
    OpenTransaction,
)
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.concurrency.deadlines import Deadlines
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease

current: ContextVar[OpenTransaction | None] = ContextVar("holdfast_sqlite_transaction", default=None)


class SqliteTransactions:
    """Opens handlers' transactions, each on a session of its own; sessions are kept for the next."""

    def __init__(
        self, new_session: Callable[[], ConnectionThread], gate: WriteQueue, notify: Callable[[], None]
    ) -> None:
        self._new_session = new_session
        self._gate = gate
        self._notify = notify
        self._idle: list[ConnectionThread] = []
        self._is_closed = False
        self._closing = threading.Lock()
        self._deadlines = Deadlines("holdfast-sqlite-deadlines")

    @asynccontextmanager
    async def begin(self, lease: Lease, *, limit: timedelta) -> AsyncGenerator[AsyncTransaction]:
        """Open a transaction for an async handler of a task."""
        async with self._open(holding_job(lease), limit) as transaction:
            yield AsyncTransaction(transaction, self._notify)

    @contextmanager
    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> Generator[BlockingTransaction]:
        """Open a transaction for a handler of a task in a thread."""
        with self._open_blocking(holding_job(lease), limit) as transaction:
            yield BlockingTransaction(transaction, self._notify)

    @asynccontextmanager
    async def begin_stream(self, grant: Grant, *, limit: timedelta) -> AsyncGenerator[AsyncStreamTransaction]:
        """Open a transaction for an async handler of a consumer."""
        async with self._open(holding_share(grant), limit) as transaction:
            yield AsyncStreamTransaction(transaction)

    @contextmanager
    def begin_stream_blocking(self, grant: Grant, *, limit: timedelta) -> Generator[BlockingStreamTransaction]:
        """Open a transaction for a handler of a consumer in a thread."""
        with self._open_blocking(holding_share(grant), limit) as transaction:
            yield BlockingStreamTransaction(transaction)

    @asynccontextmanager
    async def _open(self, holding: SqliteFenceCheck, limit: timedelta) -> AsyncGenerator[OpenTransaction]:
        session = self._take()
        transaction = OpenTransaction(session, self._gate, holding, limit=limit, deadlines=self._deadlines)
        try:
            await session.run(transaction.begin)
        except BaseException:
            transaction.disown()
            self._put_back_when_free(session)
            raise
        try:
            with _joinable(transaction):
                yield transaction
                await uncancellable(session.run(transaction.commit))
        except BaseException:
            await uncancellable(session.run(transaction.abandon))  # no harm after a commit, done or failed
            raise
        finally:
            self._put_back(session)

    @contextmanager
    def _open_blocking(self, holding: SqliteFenceCheck, limit: timedelta) -> Generator[OpenTransaction]:
        session = self._take()
        transaction = OpenTransaction(session, self._gate, holding, limit=limit, deadlines=self._deadlines)
        try:
            session.run_blocking(transaction.begin)
        except BaseException:
            transaction.disown()
            self._put_back_when_free(session)
            raise
        try:
            with _joinable(transaction):
                yield transaction
                session.run_blocking(transaction.commit)
        except BaseException:
            session.run_blocking(transaction.abandon)
            raise
        finally:
            self._put_back(session)

    def _put_back_when_free(self, session: ConnectionThread) -> None:
        """Keep a session for the next only after its thread has done with what it waits for."""
        session.submit(lambda _: None).add_done_callback(lambda _: self._put_back(session))

    def _put_back(self, session: ConnectionThread) -> None:
        """Keep a session for the next, or close its connection if no next will come."""
        with self._closing:
            if not self._is_closed:
                self._idle.append(session)
                return
        session.submit(lambda connection: connection.close())  # not waited for: this may be the session's own thread

    def _take(self) -> ConnectionThread:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_session()

    def close(self) -> None:
        """Roll back what is still open, so that no stuck handler keeps the write lock, and close the sessions."""
        self._deadlines.close()
        with self._closing:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def forget(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        for session in self._idle:
            session.abandon()


@contextmanager
def _joinable(transaction: OpenTransaction) -> Generator[None]:
    token = current.set(transaction)
    transaction.is_entered = True
    try:
        yield
    finally:
        transaction.is_entered = False
        current.reset(token)
