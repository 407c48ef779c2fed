"""The pools of PostgreSQL connections."""

from __future__ import annotations

from functools import partial
from typing import Any

from psycopg import AsyncConnection

from holdfast.backends.postgres.connecting import connect, connect_blocking, drop, has_gone, is_idle
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.transaction_connection import HandlersBlockingConnection
from holdfast.store.connection_pool import AsyncPools, BlockingPool

PostgresPools = AsyncPools[AsyncConnection[Any]]
PostgresBlockingPool = BlockingPool[HandlersBlockingConnection]


class PostgresConnections:
    """`Connections` of psycopg."""

    is_reusable = staticmethod(is_idle)
    is_broken = staticmethod(has_gone)
    drop = staticmethod(drop)

    def __init__(self, location: PostgresLocation) -> None:
        self.url = location.url
        self.limit = location.pool

    def lent(self, connection: Any) -> _Lent:  # noqa: D102 - see `Connections`
        return _Lent(connection)


class _Lent:
    """Restores what a handler may have set; a class, because a generator costs an effect some 3 µs."""

    __slots__ = ("_connection", "_kept")

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        lent = self._connection
        self._kept = lent.row_factory, lent.cursor_factory, lent.prepare_threshold

    def __exit__(self, *_: object) -> None:
        lent = self._connection
        lent.row_factory, lent.cursor_factory, lent.prepare_threshold = self._kept


def pools_for_verbs(location: PostgresLocation) -> PostgresPools:
    """Return the pools for verbs: only our own statements run there, with planner settings for them."""
    return AsyncPools(PostgresConnections(location), partial(connect, location, for_verbs=True), users="calls")


def pools_for_handlers(location: PostgresLocation) -> PostgresPools:
    """Return the pools for transactions of async handlers."""
    return AsyncPools(PostgresConnections(location), partial(connect, location), users="transactions of async handlers")


def blocking_pool(location: PostgresLocation) -> PostgresBlockingPool:
    """Return the pool for transactions of handlers in threads."""
    users = "transactions of handlers in threads"
    return BlockingPool(PostgresConnections(location), partial(connect_blocking, location), users=users)
