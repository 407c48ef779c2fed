"""The caller's own connection: what kinds are known, and how a verb runs in its transaction.

A blocking connection is used in a thread while the caller awaits, so that a statement that waits for a lock does not
stop the event loop. Libraries that wrap a connection are recognised without being imported.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from holdfast.backends.postgres.driving import drive, drive_blocking
from holdfast.backends.postgres.location import Location
from holdfast.backends.postgres.runners import Verb
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.steps import Steps
from holdfast.backends.postgres.trouble import translate
from holdfast.errors import ConfigError, Unsupported

T = TypeVar("T")
_WHERE = "the caller's connection"
_KINDS = "a psycopg connection or cursor, a SQLAlchemy Session or Connection (also async), or a Django connection"
Raw = Connection[Any] | AsyncConnection[Any]


class CallersRunner:
    """Runs each verb in the transaction that the caller has open; what fails there is the caller's to roll back."""

    def __init__(self, resolve: Callable[[], Awaitable[Raw]], statements: Statements) -> None:
        self._resolve = resolve
        self._statements = statements

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        raw = await self._resolve()
        try:
            if isinstance(raw, AsyncConnection):
                return await drive(raw, self._statements, verb())
            return await asyncio.to_thread(drive_blocking, raw, self._statements, verb())
        except psycopg.Error as error:
            raise translate(error, _WHERE, broken=raw.closed) from error

    async def once(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)

    async def look(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)

    async def read(self, verb: Verb[T]) -> T:
        """Run a verb now."""
        return await self.write(verb)


def run_blocking(using: object, location: Location, statements: Statements, steps: Steps[T]) -> T:
    """Run a verb now, in this thread, in the caller's transaction."""
    raw = _unwrap(using)
    if not isinstance(raw, Connection):
        message = (
            f"{type(using).__name__} is async, and this call cannot wait for it: "
            "await transactions.join(using).finish(…) instead"
        )
        raise Unsupported(message)
    _check(raw, location)
    try:
        return drive_blocking(raw, statements, steps)
    except psycopg.Error as error:
        raise translate(error, _WHERE, broken=raw.closed) from error


def runner_for(using: object, location: Location, statements: Statements) -> CallersRunner:
    """Return the runner for a caller's connection; raises `ConfigError` if it cannot be used."""
    found = _unwrap(using)
    if isinstance(found, Connection | AsyncConnection):
        _check(found, location)

        async def known() -> Raw:
            return found

        return CallersRunner(known, statements)

    async def resolve() -> Raw:
        raw = await _resolve_sqlalchemy(using)
        _check(raw, location)
        return raw

    return CallersRunner(resolve, statements)


def _unwrap(using: Any) -> Raw | None:
    """Return the driver's connection inside; None where it can only be had by awaiting."""
    raw: Any = None
    if _is_connection(using):
        raw = using
    elif _is_cursor(using):
        raw = using.connection
    elif _is_one_of(using, "sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection"):
        return None
    elif _is_one_of(using, "sqlalchemy.orm", "Session", "scoped_session"):
        raw = using.connection().connection.driver_connection
    elif _is_one_of(using, "sqlalchemy.engine", "Connection"):
        raw = using.connection.driver_connection
    elif _is_one_of(using, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        raw = _of_django(using)
    elif type(using).__module__.partition(".")[0] == "asyncpg":
        message = "using= an asyncpg connection is not supported yet: pass a psycopg or SQLAlchemy (psycopg) connection"
        raise Unsupported(message)
    return _known(using, raw)


def _is_connection(using: object) -> TypeGuard[Raw]:
    return isinstance(using, Connection | AsyncConnection)


def _is_cursor(using: object) -> TypeGuard[Cursor[Any] | AsyncCursor[Any]]:
    return isinstance(using, Cursor | AsyncCursor)


def _is_one_of(using: Any, module: str, *names: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(using, tuple(getattr(loaded, name) for name in names))


def _of_django(using: Any) -> object:
    using.ensure_connection()
    if not using.in_atomic_block:
        message = "the Django connection given as using= is in no transaction: open `with transaction.atomic():` first"
        raise ConfigError(message)
    return using.connection


async def _resolve_sqlalchemy(using: Any) -> Raw:
    connection = await using.connection() if _is_one_of(using, "sqlalchemy.ext.asyncio", "AsyncSession") else using
    return _known(using, (await connection.get_raw_connection()).driver_connection)


def _known(using: object, raw: Any) -> Raw:
    if _is_connection(raw):
        return raw
    what = type(using).__name__
    if raw is not None:
        what += f" over {type(raw).__module__.partition('.')[0]}"
    raise ConfigError(f"using= must be {_KINDS}, over psycopg 3; not {what}")


def _check(raw: Raw, location: Location) -> None:
    """See that a transaction is open, or opens by itself with the next statement, and that it leads to our database."""
    if raw.closed:
        raise ConfigError("the connection given as using= is closed")
    if raw.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
        message = "the connection given as using= is in no transaction: open `with connection.transaction():` first"
        raise ConfigError(message)
    ours = conninfo_to_dict(location.conninfo).get("dbname")
    if ours and raw.info.dbname != ours:
        message = f"the connection given as using= leads to the database {raw.info.dbname!r}, not to {location.url}"
        raise ConfigError(message)
