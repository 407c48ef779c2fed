"""psycopg 3: connections and cursors, blocking and async."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus

from holdfast.backends.sql.using.kinds import ConnectionKind, direct, is_closed, no_transaction
from holdfast.errors import ConfigError


def recognise(using: Any) -> ConnectionKind | None:
    """Return how to reach its connection; None for objects of other libraries."""
    raw = using.connection if isinstance(using, Cursor | AsyncCursor) else using
    if not isinstance(raw, Connection | AsyncConnection):
        return None
    return direct(raw, check_open, is_async=isinstance(raw, AsyncConnection))


def check_open(raw: Any) -> Any:
    """Check that a transaction is open, or begins with the next statement."""
    if raw.closed:
        raise is_closed()
    if raw.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
        raise no_transaction("open `with connection.transaction():`")
    return raw


def check_of_django(raw: Any) -> Any:
    """Check a connection that Django has opened: with psycopg 2 if version 3 is not installed."""
    if isinstance(raw, Connection):
        return check_open(raw)
    driver = type(raw).__module__.partition(".")[0]
    message = f"the Django connection given as using= uses {driver}: install psycopg 3, which Django then prefers"
    raise ConfigError(message)
