"""Opens handlers' transactions on SQLite, each on a connection with its own thread; both are reused."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta

from holdfast.backends.sqlite.connection_thread import ConnectionThread
from holdfast.backends.sqlite.handler_transaction import (
    SqliteAsyncTransaction,
    SqliteBlockingTransaction,
    SqlitePlace,
)
from holdfast.backends.sqlite.write_queue import WriteQueue
from holdfast.concurrency.deadlines import Deadlines
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.fences import FencedVerbs, fence_of_job, fence_of_share
from holdfast.store.handler_transaction import FenceCheck, opened, opened_blocking
from holdfast.store.steps import Place


class SqliteTransactions:
    """Opens handlers' transactions."""

    def __init__(
        self,
        new_session: Callable[[], ConnectionThread],
        queue: WriteQueue,
        verbs: FencedVerbs,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        self._new_session = new_session
        self._queue = queue
        self._verbs = verbs
        self._became_ready = became_ready
        self._idle: list[ConnectionThread] = []
        self._is_closed = False
        self._closing = threading.Lock()
        self._deadlines = Deadlines(store_thread_name("sqlite-deadlines"))

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[SqliteAsyncTransaction]:
        """Open a transaction for an async handler of a task."""
        return self._open(fence_of_job(lease, self._verbs), limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[SqliteBlockingTransaction]:
        """Open a transaction for a task's handler that runs in a thread."""
        return self._open_blocking(fence_of_job(lease, self._verbs), limit)

    def begin_stream(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[SqliteAsyncTransaction]:
        """Open a transaction for an async handler of a consumer."""
        return self._open(fence_of_share(grant, self._verbs), limit)

    def begin_stream_blocking(
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[SqliteBlockingTransaction]:
        """Open a transaction for a consumer's handler that runs in a thread."""
        return self._open_blocking(fence_of_share(grant, self._verbs), limit)

    @asynccontextmanager
    async def _open(self, fence: FenceCheck, limit: timedelta) -> AsyncGenerator[SqliteAsyncTransaction]:
        async with opened(SqliteAsyncTransaction(self._place(), fence, limit)) as transaction:
            yield transaction

    @contextmanager
    def _open_blocking(self, fence: FenceCheck, limit: timedelta) -> Generator[SqliteBlockingTransaction]:
        with opened_blocking(SqliteBlockingTransaction(self._place(), fence, limit)) as transaction:
            yield transaction

    def _place(self) -> SqlitePlace:
        try:
            session = self._idle.pop()
        except IndexError:
            session = self._new_session()

        def put_back(*, is_free: bool) -> None:
            if is_free:
                self._put_back(session)
            else:
                session.submit(lambda _: None).add_done_callback(lambda _: self._put_back(session))

        return SqlitePlace(session, self._queue, self._deadlines, self._verbs, self._became_ready, put_back)

    def _put_back(self, session: ConnectionThread) -> None:
        """Keep a connection for the next transaction, or close it if the store is closed."""
        with self._closing:
            if not self._is_closed:
                self._idle.append(session)
                return
        session.submit(lambda connection: connection.close())  # do not wait: this may be the connection's thread

    def close(self) -> None:
        """Roll back open transactions, so that no stuck handler keeps the write lock, and close the connections."""
        self._deadlines.close()
        with self._closing:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
