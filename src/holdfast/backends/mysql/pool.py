"""The pools of connections."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.backends.mysql.connecting import connect, connect_blocking
from holdfast.backends.mysql.driver import BlockingConnection, Result, VerbConnection, drop, has_gone, is_idle
from holdfast.backends.mysql.error_map import DriverError, translate
from holdfast.backends.mysql.handlers_connection import MysqlHandlersBlockingConnection, MysqlHandlersConnection
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.store.connection_pool import AsyncPools, BlockingPool

MysqlPools = AsyncPools[VerbConnection]
MysqlBlockingPool = BlockingPool[BlockingConnection]
_ERRORS: tuple[type[Exception], ...] = (*DriverError, OSError)


class MysqlConnections:
    """`Connections` of both drivers."""

    is_reusable = staticmethod(is_idle)
    is_broken = staticmethod(has_gone)
    drop = staticmethod(drop)

    def __init__(self, location: MysqlLocation) -> None:
        self.url = location.url
        self.limit = location.pool

    @contextmanager
    def lent(self, connection: Any) -> Generator[None]:  # noqa: D102 - see `Connections`
        name = "_cursor_cls" if isinstance(connection, VerbConnection) else "cursorclass"
        kept = getattr(connection, name)
        try:
            yield
        finally:
            setattr(connection, name, kept)


def pools_for_verbs(location: MysqlLocation) -> MysqlPools:
    """Return the pools for verbs: only our own statements run there."""
    return AsyncPools(MysqlConnections(location), partial(connect, location), users="calls")


def pools_for_handlers(location: MysqlLocation) -> MysqlPools:
    """Return the pools for transactions of async handlers."""
    open_one = partial(connect, location, MysqlHandlersConnection)
    return AsyncPools(MysqlConnections(location), open_one, users="transactions of async handlers")


def beside_pool(location: MysqlLocation) -> MysqlBlockingPool:
    """Return the pool for reads of what is committed, beside a transaction with an older snapshot."""
    return BlockingPool(
        MysqlConnections(location), partial(connect_blocking, location), users="looks at what is committed"
    )


def ask_beside(pool: MysqlBlockingPool, url: str, texts: list[str]) -> list[Result]:
    """Run reads on a connection of the pool; raises errors of Holdfast, because no transaction of ours has failed."""
    with pool.connection() as connection:
        try:
            return connection.ask(texts)
        except _ERRORS as error:
            broken = not is_idle(connection)
            drop(connection)
            raise translate(error, url, broken=broken) from error


def blocking_pool(location: MysqlLocation) -> MysqlBlockingPool:
    """Return the pool for transactions of handlers in threads."""
    open_one = partial(connect_blocking, location, MysqlHandlersBlockingConnection)
    return BlockingPool(MysqlConnections(location), open_one, users="transactions of handlers in threads")
