"""Check whether the caller's connection leads to our tables.

Names prove nothing: a pooler may rename a database, and two servers may have databases of the same name. So both
sessions are asked which server, database and table they see. Each connection is asked once.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple
from weakref import WeakSet

import psycopg

from holdfast.backends.postgres.connecting import connect_blocking, drop
from holdfast.backends.postgres.error_map import translate
from holdfast.backends.postgres.execute import drive_blocking
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.statements import Statements
from holdfast.backends.postgres.timeouts import bounded_blocking
from holdfast.backends.sql.steps import row
from holdfast.errors import ConfigError
from holdfast.store.steps import Ready, Steps


class StoreIdentity(NamedTuple):
    """What a session sees: the start time of its server, the database, and the table of jobs."""

    server: int
    database: str
    table: int | None


def look() -> Steps[StoreIdentity]:
    """Ask a session for its identity."""
    return StoreIdentity(*(yield from row("identify")))


class Identity:
    """The identity of our own store, and the connections that were found to lead to it."""

    def __init__(self, location: PostgresLocation, statements: Statements) -> None:
        self._location = location
        self._statements = statements
        self._lock = threading.Lock()
        self._ours: StoreIdentity | None = None
        self._known: WeakSet[Any] = WeakSet()

    def is_known(self, raw: object) -> bool:
        """Return whether a connection was found to lead to our tables."""
        with self._lock:
            return _itself(raw) in self._known

    def compare(self, raw: object, found: StoreIdentity) -> None:
        """Remember a connection that sees the same as ours; raise `ConfigError` for any other. Blocks."""
        if found != self._ours:  # ours is unknown as yet, or our server was restarted since
            ours = self._ours = self._ask()
            if found != ours:
                raise ConfigError(f"the connection given as using= leads {self._elsewhere(found, ours)}")
        with self._lock:
            self._known.add(_itself(raw))

    def _ask(self) -> StoreIdentity:
        connection = connect_blocking(self._location)
        try:
            with bounded_blocking(connection, self._location.reply_timeout):
                return drive_blocking(connection, self._statements, look(), Ready())
        except psycopg.Error as error:
            raise translate(error, self._location.url, broken=connection.closed) from error
        finally:
            drop(connection)

    def _elsewhere(self, found: StoreIdentity, ours: StoreIdentity) -> str:
        url = self._location.url
        if found.database != ours.database:
            return f"to the database {found.database!r}, not to {ours.database!r} of {url}"
        if found.server != ours.server:
            return f"to the database {found.database!r} of a different server than {url}"
        return f"to no tables of the schema {self._location.schema!r} that {url} sees"


def _itself(raw: object) -> object:
    """Return the connection behind a proxy: asyncpg's pool creates a new proxy each time."""
    return getattr(raw, "_con", raw)
