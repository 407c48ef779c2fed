"""Opens handlers' transactions, on other connections than those of the verbs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import cast

from holdfast.backends.mysql.handler_transaction import MysqlAsyncTransaction, MysqlBlockingTransaction
from holdfast.backends.mysql.handlers_connection import MysqlHandlersBlockingConnection, MysqlHandlersConnection
from holdfast.backends.mysql.pool import MysqlBlockingPool, MysqlPools
from holdfast.backends.mysql.statements import MysqlStatements
from holdfast.backends.sql.server_transaction import TransactionPlace
from holdfast.model.isolation import Isolation
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import FenceCheck, Opened, opened_blocking


class MysqlTransactions(HandlersTransactions):
    """Opens handlers' transactions."""

    def __init__(
        self, pools: MysqlPools, blocking: MysqlBlockingPool, place: TransactionPlace[MysqlStatements]
    ) -> None:
        super().__init__(place.verbs)
        self._pools = pools
        self._blocking = blocking
        self._place = place

    @asynccontextmanager
    async def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AsyncGenerator[MysqlAsyncTransaction]:
        async with self._pools.here.connection() as connection:
            own = cast("MysqlHandlersConnection", connection)
            async with Opened(partial(MysqlAsyncTransaction, own, self._place, fence, limit, isolation)) as transaction:
                yield transaction

    @contextmanager
    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> Generator[MysqlBlockingTransaction]:
        with self._blocking.connection() as connection:
            own = cast("MysqlHandlersBlockingConnection", connection)
            with opened_blocking(
                partial(MysqlBlockingTransaction, own, self._place, fence, limit, isolation)
            ) as transaction:
                yield transaction
