"""Opens handlers' transactions on SQLite, each on a connection with its own thread; both are reused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta

from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.handler_transaction import SqlitePlace, SqliteTransaction
from holdfast.concurrency.connection_thread import ConnectionThread, ConnectionThreads
from holdfast.concurrency.deadlines import Deadlines
from holdfast.concurrency.priority_lock import PriorityLock
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.model.isolation import Isolation
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import FenceCheck, FencedVerbs, Opened, opened_blocking
from holdfast.store.steps import Place


class SqliteTransactions(HandlersTransactions):
    """Opens handlers' transactions."""

    def __init__(
        self,
        new_session: Callable[[], ConnectionThread[Connection]],
        queue: PriorityLock,
        verbs: FencedVerbs,
        became_ready: Callable[[Sequence[Place]], None],
    ) -> None:
        super().__init__(verbs)
        self._sessions = ConnectionThreads(new_session)
        self._deadlines = Deadlines(store_thread_name("sqlite-deadlines"))
        self._place = SqlitePlace(queue, self._deadlines, verbs, became_ready, self._sessions.put_back)

    def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[SqliteTransaction]:
        del isolation  # with one writer at a time, every transaction is serializable
        return Opened(lambda: self._transaction(fence, limit, is_async=True))

    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractContextManager[SqliteTransaction]:
        del isolation
        return opened_blocking(lambda: self._transaction(fence, limit, is_async=False))

    def _transaction(self, fence: FenceCheck, limit: timedelta, *, is_async: bool) -> SqliteTransaction:
        return SqliteTransaction(self._sessions.take(), self._place, fence, limit, is_async=is_async)

    def close(self) -> None:
        """Roll back open transactions, so that no stuck handler keeps the write lock, and close the connections."""
        self._deadlines.close()
        self._sessions.close()
