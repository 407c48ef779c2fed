"""Run verbs in the caller's open transaction on SQLite, undone as a whole if they raise.

A sqlite3 connection may belong to the thread that opened it, so it is used in the thread of the call.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from holdfast.backends.sql.using.callers import Callers
from holdfast.backends.sql.using.django import DjangoConnections
from holdfast.backends.sql.using.kinds import ConnectionKind, direct, no_transaction
from holdfast.backends.sql.using.sqlalchemy import Driver, SqlAlchemyConnections
from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.error_map import translate
from holdfast.backends.sqlite.execute import drive
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.concurrency.statement_threads import where_it_was_called
from holdfast.errors import ConfigError
from holdfast.store.steps import Ready, Steps

T = TypeVar("T")


class SqliteCallers(Callers):
    """The connections that callers pass. `became_ready` is called early: a woken worker waits for the write lock."""

    in_thread = staticmethod(where_it_was_called)

    def __init__(self, location: SqliteLocation, clock: Callable[[], int], became_ready: Callable[[], None]) -> None:
        kinds = f"a sqlite3.Connection to {location.url}, a SQLAlchemy Session or Connection, or a Django connection"
        super().__init__(kinds, _RECOGNISERS)
        self._location = location
        self._clock = clock
        self._became_ready = became_ready

    def drive_blocking(self, raw: sqlite3.Connection, steps: Steps[T]) -> T:  # noqa: D102 - see `Callers`
        self._check_file(raw)
        tx = Tx(raw, self._clock())
        ready = Ready()
        try:
            with _plain_rows(raw), tx.savepoint():
                result = drive(tx, steps, ready)
        except sqlite3.Error as error:
            raise translate(error, "the caller's connection") from error
        if ready:
            self._became_ready()
        return result

    def _check_file(self, raw: sqlite3.Connection) -> None:
        """Check that the connection leads to this store's file."""
        try:
            cursor = raw.cursor()
            cursor.row_factory = None  # the caller's factory may turn a row into anything
            name = os.fsdecode(cursor.execute("pragma database_list").fetchone()[2])
        except sqlite3.ProgrammingError as error:
            raise _unusable(error) from error
        path = self._location.path
        if path is None or not name or not Path(name).samefile(path):
            message = f"the connection given as using= is open on {name or 'memory'!r}, not on {self._location.url}"
            raise ConfigError(message)


def _recognise(using: object) -> ConnectionKind | None:
    return direct(using, _check_open) if isinstance(using, sqlite3.Connection) else None


def _check_open(raw: sqlite3.Connection) -> sqlite3.Connection:
    """Check that a transaction is open; callable in any thread."""
    try:
        is_open = raw.in_transaction
    except sqlite3.ProgrammingError as error:
        raise _unusable(error) from error
    if not is_open:
        raise no_transaction("execute('begin immediate')")
    return raw


def _start(connection: Any, raw: sqlite3.Connection) -> None:
    """Begin as SQLAlchemy's first write would, if it has not begun; a connection in autocommit is left alone."""
    if not raw.in_transaction and raw.isolation_level is not None:
        connection.exec_driver_sql("begin immediate")


_RECOGNISERS = (
    _recognise,
    SqlAlchemyConnections(blocking={"sqlite+pysqlite": Driver(_check_open, _start)}).recognise,
    DjangoConnections("sqlite", "SQLite", _check_open).recognise,
)


def _unusable(error: sqlite3.ProgrammingError) -> ConfigError:
    if "thread" not in str(error):
        return ConfigError(f"the connection given as using= cannot be used: {error}")
    return ConfigError(
        "the connection given as using= was opened in another thread: make the call in the thread that opened the "
        "connection, or connect with check_same_thread=False and let only one thread use it at a time"
    )


@contextmanager
def _plain_rows(raw: sqlite3.Connection) -> Generator[None]:
    """Read rows as tuples and texts as str, whatever factories the caller has set."""
    row_factory, text_factory = raw.row_factory, raw.text_factory
    raw.row_factory, raw.text_factory = None, str
    try:
        yield
    finally:
        raw.row_factory, raw.text_factory = row_factory, text_factory
