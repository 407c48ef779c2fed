"""Opens handlers' transactions on PostgreSQL, on other connections than those of the verbs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.backends.postgres.handler_transaction import (
    PostgresAsyncTransaction,
    PostgresBlockingTransaction,
)
from holdfast.backends.postgres.pool import PostgresBlockingPool, PostgresPools
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.sql.server_transaction import TransactionPlace
from holdfast.model.isolation import Isolation
from holdfast.store.connection_pool import Lending
from holdfast.store.fences import HandlersTransactions
from holdfast.store.handler_transaction import FenceCheck, Opened, opened_blocking


class PostgresTransactions(HandlersTransactions):
    """Opens handlers' transactions."""

    def __init__(
        self, pools: PostgresPools, blocking: PostgresBlockingPool, place: TransactionPlace[Statements]
    ) -> None:
        super().__init__(place.verbs)
        self._pools = pools
        self._blocking = blocking
        self._place = place

    def open(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[PostgresAsyncTransaction]:
        make = partial(PostgresAsyncTransaction, place=self._place, fence=fence, limit=limit, isolation=isolation)
        return _OnPooledConnection(self._pools.here.connection(), make)

    @contextmanager
    def open_blocking(  # noqa: D102
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> Generator[PostgresBlockingTransaction]:
        with self._blocking.connection() as connection:
            make = partial(PostgresBlockingTransaction, connection, self._place, fence, limit, isolation)
            with opened_blocking(make) as transaction:
                yield transaction


class _OnPooledConnection:
    """A transaction on a connection that is lent to it; a class for the same reason as `Opened`."""

    def __init__(self, lending: Lending[Any], make: Callable[[Any], PostgresAsyncTransaction]) -> None:
        self._lending = lending
        self._make = make

    async def __aenter__(self) -> PostgresAsyncTransaction:
        connection = await self._lending.__aenter__()
        self._opened = Opened(partial(self._make, connection))
        try:
            return await self._opened.__aenter__()
        except BaseException:
            await self._lending.__aexit__()
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._opened.__aexit__(kind, error, trace)
        finally:
            await self._lending.__aexit__()
