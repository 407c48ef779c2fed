"""asyncpg: its connections, including those from its pool; and how the steps of a verb run on one.

Statements are written for psycopg: `%(name)s`, mostly followed by a cast. asyncpg numbers its parameters and encodes
each as the type that the server reports. So a parameter with a cast is sent as text, which the server converts to that
type, arrays too: it needs no codec, neither one for which asyncpg would have to query the server nor one that the
caller has installed. A parameter without a cast is passed unchanged.

A statement is prepared under the empty name, so that nothing remains in the session or in the caller's statement cache,
and so that it works through a transaction pooler.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import psycopg

from holdfast.backends.postgres.statements import Statements, transposed
from holdfast.backends.sql.steps import Ask, Asked, Each, Rows, Together
from holdfast.backends.sql.using.kinds import ConnectionKind, comes_from, direct, errors_of, is_closed, no_transaction
from holdfast.errors import ConfigError
from holdfast.store.steps import BecameReady, Steps

T = TypeVar("T")
_PARAMETER = re.compile(r"%\((\w+)\)s(::)?|%%")

Place = tuple[str, bool]  # a parameter's name, and whether it is sent as text


def is_asyncpg(using: Any) -> bool:
    """Return whether it is a connection of asyncpg, or one from its pool."""
    return comes_from(using, "asyncpg.connection", "Connection") or comes_from(
        using, "asyncpg.pool", "PoolConnectionProxy"
    )


def recognise(using: Any) -> ConnectionKind | None:
    """Return how to reach its connection; None for objects of other libraries."""
    return direct(using, check_open, is_async=True) if is_asyncpg(using) else None


def check_open(connection: Any) -> Any:
    """Check that a transaction is open, and that the connection belongs to this event loop."""
    if getattr(connection, "_con", connection) is None or connection.is_closed():
        raise is_closed()
    loop = getattr(connection, "_loop", None)
    if loop is not None and loop is not _running_loop():
        message = (
            "the asyncpg connection given as using= belongs to another event loop: await the call where the connection "
            "was made, without `.sync`"
        )
        raise ConfigError(message)
    if not connection.is_in_transaction():
        raise no_transaction("open `async with connection.transaction():`")
    return connection


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def drive(connection: Any, statements: Statements, steps: Steps[T]) -> T:
    """Run a verb to its end; errors of the server are raised as those of psycopg."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await _answer(connection, statements, asked))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


async def _answer(connection: Any, statements: Statements, asked: Asked) -> Rows:
    if isinstance(asked, BecameReady):
        return []
    if isinstance(asked, Together):
        return [await _answer(connection, statements, ask) for ask in asked.asks]
    if isinstance(asked, Each):
        asked = transposed(asked)
    if not isinstance(asked, Ask):
        raise TypeError(asked)  # COPY and migrations run only on the store's connections
    text, places = numbered(statements.text(asked.statement))
    values = arguments(places, statements.parameters(asked.parameters))
    try:
        statement = await connection.prepare(text, name="")
        found = await statement.fetch(*values)
        if not statement.get_attributes():
            return [()] * _changed(statement.get_statusmsg())
        return [tuple(row) if asked.record is None else asked.record(*row) for row in found]
    except errors_of("asyncpg", "PostgresError", "InterfaceError", "InternalClientError") as error:
        raise as_psycopg(error) from error
    except OSError as error:  # a network error, or TimeoutError: the connection's command timeout
        raise as_psycopg(error) from error


def _changed(status: str) -> int:
    """Return how many rows a statement without columns changed, from a command tag such as `INSERT 0 5`."""
    number = status.rpartition(" ")[2]
    return int(number) if number.isdecimal() else 0


def as_psycopg(error: Any) -> psycopg.Error:
    """Return an error of asyncpg as the one that psycopg raises for the same SQLSTATE."""
    code = getattr(error, "sqlstate", None)
    text = str(error) or type(error).__name__
    if comes_from(error, "asyncpg", "InterfaceError") and not comes_from(error, "asyncpg", "InternalClientError"):
        return psycopg.InterfaceError(text)
    if code is None:  # a network error; a connection that is just being closed raises InternalClientError
        return psycopg.OperationalError(text)
    try:
        return psycopg.errors.lookup(code)(text)
    except KeyError:
        return psycopg.DatabaseError(text)


@lru_cache(maxsize=1024)
def numbered(text: bytes) -> tuple[str, tuple[Place, ...]]:
    """Convert a statement from psycopg's to asyncpg's form, and return its parameters in order."""
    places: dict[Place, int] = {}

    def replace(found: re.Match[str]) -> str:
        name, typed = found.groups()
        if name is None:
            return "%"
        number = places.setdefault((name, bool(typed)), len(places) + 1)
        return f"${number}::text::" if typed else f"${number}"

    return _PARAMETER.sub(replace, text.decode()), tuple(places)


def arguments(places: tuple[Place, ...], parameters: Mapping[str, object]) -> list[object]:
    """Return the values of the parameters in order."""
    return [as_text(parameters[name]) if typed else parameters[name] for name, typed in places]


def as_text(value: Any) -> str | None:
    """Return a value in the server's text format."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
