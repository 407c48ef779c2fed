"""The drivers of callers' connections: PyMySQL, mysqlclient and asyncmy."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pymysql
from asyncmy.connection import Connection as AsyncmyConnection
from asyncmy.cursors import Cursor as AsyncmyCursor

from holdfast.backends.mysql.driver import Result, check_length, is_in_transaction
from holdfast.backends.mysql.error_map import lacks_savepoint
from holdfast.backends.sql.using.kinds import ConnectionKind, comes_from, direct, is_closed, no_transaction
from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError

# Newer MariaDB aborts a repeatable-read transaction when it locks a row that has changed since its snapshot, as the
# lease of a running job has. Our statements mean the latest version.
WITHOUT_SNAPSHOT_CHECKS = "set statement innodb_snapshot_isolation = off for "
_OPEN = "open it with `begin()`, or connect with autocommit off,"
_SAVE, _UNDO = "savepoint holdfast_verb", "rollback to savepoint holdfast_verb"
_PROBE = ("savepoint holdfast_probe", "release savepoint holdfast_probe")


def _is_mysqlclient(raw: Any) -> bool:
    return comes_from(raw, "MySQLdb.connections", "Connection")


def _is_asyncmy(raw: object) -> bool:
    return isinstance(raw, AsyncmyConnection)


def _is_pymysql(raw: object) -> bool:
    return isinstance(raw, pymysql.connections.Connection)


def recognise(using: Any) -> ConnectionKind | None:
    """Return how to reach a driver's connection; None for objects of other libraries."""
    if _is_asyncmy(using):
        return direct(using, check_open, is_async=True)
    if _is_pymysql(using) or _is_mysqlclient(using):
        return direct(using, check_open)
    return None


def is_open(raw: Any) -> bool:
    """Return whether a connection is open, as far as this side knows."""
    return bool(raw.connected if _is_asyncmy(raw) else raw.open)


def check_open(raw: Any) -> Any:
    """Check that a transaction is open, or begins with the next statement."""
    if not (_is_pymysql(raw) or _is_asyncmy(raw) or _is_mysqlclient(raw)):
        name = type(raw).__module__.partition(".")[0]
        raise ConfigError(f"the connection given as using= is one of {name}: use PyMySQL, mysqlclient or asyncmy")
    if not is_open(raw):
        raise is_closed()
    if not raw.get_autocommit():
        return raw
    if _is_mysqlclient(raw):
        _probe(raw)
    elif not is_in_transaction(raw):
        raise no_transaction(_OPEN)
    return raw


def _probe(raw: Any) -> None:
    """Ask the server whether a transaction is open: outside of one there is no savepoint to release."""
    try:
        with as_ours():
            for text in _PROBE:
                ask(raw, text, ())
    except pymysql.OperationalError as error:
        if lacks_savepoint(error):
            raise no_transaction(_OPEN) from error
        raise


def ask(raw: Any, text: str, texts: tuple[str, ...], longest: int | None = None) -> Result:
    """Run one statement; `longest` is as in `check_length`."""
    plain = sys.modules["MySQLdb.cursors"].Cursor if _is_mysqlclient(raw) else pymysql.cursors.Cursor
    with raw.cursor(plain) as cursor:
        message = cursor.mogrify(text, texts)
        check_length(message, longest)
        cursor.execute(message)
        rows = None if cursor.description is None else tuple(cursor.fetchall())
        return Result(rows, max(0, cursor.rowcount), cursor.lastrowid or 0)


async def ask_async(raw: Any, text: str, texts: tuple[str, ...], longest: int | None = None) -> Result:
    """Run one statement on an async connection."""
    async with raw.cursor(AsyncmyCursor) as cursor:
        message = cursor.mogrify(text, texts)
        check_length(message, longest)
        await cursor.execute(message)
        rows = None if cursor.description is None else tuple(await cursor.fetchall())
        return Result(rows, max(0, cursor.rowcount), cursor.lastrowid or 0)


@contextmanager
def whole(raw: Any) -> Generator[None]:
    """Undo what a verb has written if it raises: the server undoes only the statement that has failed."""
    with as_ours():
        ask(raw, _SAVE, ())
    try:
        yield
    except BaseException:
        try:
            with as_ours():
                ask(raw, _UNDO, ())
        except Exception as reason:  # noqa: BLE001 - whatever it is, the verb is not undone
            _end_unless_gone(raw, reason)
        raise


@asynccontextmanager
async def whole_async(raw: Any) -> AsyncGenerator[None]:
    """Do the same on an async connection."""
    await ask_async(raw, _SAVE, ())
    try:
        yield
    except BaseException:
        await uncancellable(_undo(raw))
        raise


async def _undo(raw: Any) -> None:
    try:
        await ask_async(raw, _UNDO, ())
    except Exception as reason:  # noqa: BLE001 - as above
        _end_unless_gone(raw, reason)


def _end_unless_gone(raw: Any, reason: Exception) -> None:
    """Close a connection whose transaction contains a part of a verb, so that the caller cannot commit that."""
    if not lacks_savepoint(reason):
        with suppress(Exception):  # PyMySQL's `close` raises when the caller closes it once more
            (raw._force_close if _is_pymysql(raw) else raw.close)()  # noqa: SLF001


@contextmanager
def as_ours() -> Generator[None]:
    """Raise an error of mysqlclient, if that is loaded, as one of PyMySQL, which has the same numbers."""
    loaded = sys.modules.get("MySQLdb")
    foreign: tuple[type[Exception], ...] = () if loaded is None else (loaded.MySQLError,)
    try:
        yield
    except foreign as error:
        raise pymysql.OperationalError(*error.args) from error
