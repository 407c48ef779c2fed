"""Opens handlers' transactions on PostgreSQL, on other connections than those of the verbs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial

from holdfast.backends.postgres.handler_transaction import (
    PostgresAsyncTransaction,
    PostgresBlockingTransaction,
    PostgresPlace,
)
from holdfast.backends.postgres.pool import PostgresBlockingPool, PostgresPools
from holdfast.model.isolation import Isolation
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import FenceCheck, opened, opened_blocking


class PostgresTransactions(HandlersTransactions):
    """Opens handlers' transactions."""

    def __init__(self, pools: PostgresPools, blocking: PostgresBlockingPool, place: PostgresPlace) -> None:
        super().__init__(place.verbs)
        self._pools = pools
        self._blocking = blocking
        self._place = place

    @asynccontextmanager
    async def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AsyncGenerator[PostgresAsyncTransaction]:
        async with self._pools.here.connection() as connection:
            make = partial(PostgresAsyncTransaction, connection, self._place, fence, limit, isolation)
            async with opened(make) as transaction:
                yield transaction

    @contextmanager
    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> Generator[PostgresBlockingTransaction]:
        with self._blocking.connection() as connection:
            make = partial(PostgresBlockingTransaction, connection, self._place, fence, limit, isolation)
            with opened_blocking(make) as transaction:
                yield transaction
