"""psycopg 3: connections and cursors, blocking and async."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.using.adapter import Async, Blocking, Kind, is_closed, no_transaction

Raw = TypeVar("Raw", Connection[Any], AsyncConnection[Any])


def recognise(using: object) -> Kind | None:
    """Return how to reach its connection; None for objects of other libraries."""
    raw = using.connection if _is_cursor(using) else using
    if is_blocking(raw):
        blocking = check_open(raw)
        return Blocking(lambda: check_open(blocking))
    if _is_async(raw):
        awaited = check_open(raw)

        async def reach() -> AsyncConnection[Any]:
            return check_open(awaited)

        return Async(reach)
    return None


def is_blocking(raw: object) -> TypeGuard[Connection[Any]]:
    """Return whether it is a blocking connection."""
    return isinstance(raw, Connection)


def _is_async(raw: object) -> TypeGuard[AsyncConnection[Any]]:
    return isinstance(raw, AsyncConnection)


def _is_cursor(using: object) -> TypeGuard[Cursor[Any] | AsyncCursor[Any]]:
    return isinstance(using, Cursor | AsyncCursor)


def check_open(raw: Raw) -> Raw:
    """Check that a transaction is open, or begins with the next statement."""
    if raw.closed:
        raise is_closed()
    if raw.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
        raise no_transaction("`with connection.transaction():`")
    return raw
