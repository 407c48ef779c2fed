"""SQLAlchemy: sessions and connections, blocking over psycopg and async over psycopg or asyncpg.

SQLAlchemy begins its transaction with the first statement that goes through it. A verb bypasses it and uses the driver,
so the transaction is begun here in the same way: otherwise a later `commit()` would find nothing to commit.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from psycopg import AsyncConnection, Connection

from holdfast.backends.postgres.using.adapter import Async, AsyncpgConnection, Blocking, Kind, is_closed
from holdfast.backends.postgres.using.asyncpg import check_open as check_asyncpg
from holdfast.backends.postgres.using.optional_types import comes_from, errors_of
from holdfast.backends.postgres.using.psycopg import check_open
from holdfast.errors import ConfigError, StoreUnavailable

_BLOCKING = {"psycopg"}
_ASYNC = {"psycopg", "psycopg_async", "asyncpg"}


def recognise(using: Any) -> Kind | None:
    """Return how to reach its connection; None for objects of other libraries."""
    if comes_from(using, "sqlalchemy.orm", "Session"):
        _check_dialect(using, _dialect(using), is_async=False)
        return Blocking(lambda: _reach(using, using.connection))
    if comes_from(using, "sqlalchemy.engine", "Connection"):
        _check_dialect(using, using.dialect, is_async=False)
        return Blocking(lambda: _reach(using, lambda: using))
    if comes_from(using, "sqlalchemy.ext.asyncio", "AsyncSession"):
        _check_dialect(using, _dialect(using), is_async=True)
        return Async(lambda: _reach_async(using, using.connection))
    if comes_from(using, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        _check_dialect(using, using.dialect, is_async=True)

        async def itself() -> Any:
            return using

        return Async(lambda: _reach_async(using, itself))
    if comes_from(using, "sqlalchemy.orm", "scoped_session") or comes_from(
        using, "sqlalchemy.ext.asyncio", "async_scoped_session"
    ):
        message = (
            f"the {type(using).__name__} given as using= is a different session in each thread or task: pass the "
            "session itself, `using=session()`"
        )
        raise ConfigError(message)
    return None


def _dialect(session: Any) -> Any:
    with _explained(session):
        return session.get_bind().dialect


def _check_dialect(using: object, dialect: Any, *, is_async: bool) -> None:
    if dialect.is_async and not is_async:
        message = (
            f"the {type(using).__name__} given as using= belongs to an async one: pass that AsyncSession or "
            "AsyncConnection, and await the call"
        )
        raise ConfigError(message)
    if dialect.name != "postgresql" or dialect.driver not in (_ASYNC if is_async else _BLOCKING):
        ways = "postgresql+psycopg or postgresql+asyncpg" if is_async else "postgresql+psycopg"
        message = (
            f"the SQLAlchemy {type(using).__name__} given as using= uses {dialect.name}+{dialect.driver}: "
            f"create its engine with a URL that begins with {ways}"
        )
        raise ConfigError(message)


def _reach(using: Any, connect: Any) -> Connection[Any]:
    with _explained(using):
        connection = connect()
        if connection.closed:
            raise is_closed()
        raw: Connection[Any] = check_open(connection.connection.driver_connection)
        if not connection.in_transaction():
            connection.begin()
        return raw


async def _reach_async(using: Any, connect: Any) -> AsyncConnection[Any] | AsyncpgConnection:
    with _explained(using):
        connection = await connect()
        if connection.closed:
            raise is_closed()
        raw: AsyncConnection[Any] | AsyncpgConnection = (await connection.get_raw_connection()).driver_connection
        if isinstance(raw, AsyncConnection):
            check_open(raw)
        if not connection.in_transaction():
            await connection.begin()
        if isinstance(raw, AsyncConnection):
            return raw
        if not raw.is_in_transaction():
            # Over asyncpg the transaction begins on the server only with the first statement.
            await connection.exec_driver_sql("select 1")
        return check_asyncpg(raw)


@contextmanager
def _explained(using: object) -> Generator[None]:
    """Translate SQLAlchemy's errors: a session that must be rolled back first, a server that cannot be reached."""
    try:
        yield
    except errors_of("sqlalchemy.exc", "DBAPIError") as error:
        raise StoreUnavailable(f"the {type(using).__name__} given as using=: {error}") from error
    except errors_of("sqlalchemy.exc", "SQLAlchemyError") as error:
        raise ConfigError(f"the {type(using).__name__} given as using= cannot be used: {error}") from error
