"""Opens handlers' transactions on PostgreSQL, on other connections than those of the verbs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta

from holdfast.backends.postgres.handler_transaction import (
    PostgresAsyncTransaction,
    PostgresBlockingTransaction,
    PostgresPlace,
)
from holdfast.backends.postgres.pool import PostgresBlockingPool, PostgresPools
from holdfast.backends.postgres.transaction_connection import HandlersConnection
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.fences import fence_of_job, fence_of_share
from holdfast.store.handler_transaction import FenceCheck, opened, opened_blocking


class PostgresTransactions:
    """Opens handlers' transactions."""

    def __init__(self, pools: PostgresPools, blocking: PostgresBlockingPool, place: PostgresPlace) -> None:
        self._pools = pools
        self._blocking = blocking
        self._place = place

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[PostgresAsyncTransaction]:
        """Open a transaction for a task's async handler."""
        return self._open(fence_of_job(lease, self._place.verbs), limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[PostgresBlockingTransaction]:
        """Open a transaction for a task's handler in a thread."""
        return self._open_blocking(fence_of_job(lease, self._place.verbs), limit)

    def begin_stream(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[PostgresAsyncTransaction]:
        """Open a transaction for a consumer's async handler."""
        return self._open(fence_of_share(grant, self._place.verbs), limit)

    def begin_stream_blocking(
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[PostgresBlockingTransaction]:
        """Open a transaction for a consumer's handler in a thread."""
        return self._open_blocking(fence_of_share(grant, self._place.verbs), limit)

    @asynccontextmanager
    async def _open(self, fence: FenceCheck, limit: timedelta) -> AsyncGenerator[PostgresAsyncTransaction]:
        async with self._pools.here.connection() as connection:
            assert isinstance(connection, HandlersConnection)  # noqa: S101 - see `connecting.py`
            async with opened(PostgresAsyncTransaction(connection, self._place, fence, limit)) as transaction:
                yield transaction

    @contextmanager
    def _open_blocking(self, fence: FenceCheck, limit: timedelta) -> Generator[PostgresBlockingTransaction]:
        with self._blocking.connection() as connection:
            place = PostgresBlockingTransaction(connection, self._place, fence, limit)
            with opened_blocking(place) as transaction:
                yield transaction
