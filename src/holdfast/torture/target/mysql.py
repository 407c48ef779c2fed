"""A database on a MySQL or MariaDB server as the target of a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from holdfast.app.open import open_backend
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.mysql_wire import MysqlWire
from holdfast.torture.names import schema_of_runs
from holdfast.torture.proxy import Proxy
from holdfast.torture.target.on_server import ServerTarget
from holdfast.torture.target.statements import TargetStatements
from holdfast.torture.urls import joined

_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 60}  # seconds; a check of all tables is one reply
_TYPES = {"number": "bigint auto_increment primary key", "text": "varchar(190)", "chars": "char", "whole": "signed"}


class CallersConnection(Connection):
    """A connection of a user's program, with the method that the other drivers' connections have."""

    def execute(self, statement: str, values: tuple[Any, ...]) -> None:
        """Run a statement."""
        with self.cursor() as cursor:
            cursor.execute(statement, values)


class MysqlQuery:
    """`Query` in a transaction. Its statements are of our own names; that of the database was checked with the URL."""

    def __init__(self, connection: Connection[Any], statements: TargetStatements) -> None:
        self._connection = connection
        self._statements = statements

    def all(self, name: str, **names: str | int) -> list[tuple[Any, ...]]:
        """Return all rows."""
        with self._connection.cursor() as cursor:
            cursor.execute(self._statements.with_names(name, **names))
            return list(cursor.fetchall())

    def each(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Go over rows, by way of a file: a connection has one open result, and a run reads two at once."""
        with tempfile.TemporaryFile("w+") as spool:
            with self._connection.cursor(SSCursor) as cursor:
                cursor.execute(self._statements[name])
                spool.writelines(f"{json.dumps(row)}\n" for row in cursor)
            spool.seek(0)
            yield from (tuple(json.loads(line)) for line in spool)


class MysqlTarget(ServerTarget):
    """`Target` over a database: that of the URL with a suffix, which no app uses."""

    store: ClassVar = "mysql"
    settings: ClassVar = ("version", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin")
    creating: ClassVar = ("create_database", "create_marker")
    errors = (pymysql.MySQLError,)

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._query = dict(parse_qsl(parts.query))
        if "socket" in self._query:
            raise ConfigError("torture cuts connections over TCP: give the server's host and port in place of socket=")
        database = schema_of_runs(unquote(parts.path.strip("/")) or None)
        if not database.replace("_", "").isalnum():
            raise ConfigError(f"torture needs a database with a plain name, of letters, digits and _, not {database!r}")
        named = joined(parts._replace(path=f"/{database}"), self._query.items())
        names = {"at": f"`{database}`.holdfast_", "database": database, **_TYPES}
        statements = TargetStatements("mysql", mark="%s", **names)
        super().__init__(named, open_backend(named).url, statements)  # refuses what is no URL, and hides the password
        self._place: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or 3306,
            "user": unquote(parts.username or "root"),
            "password": unquote(parts.password or ""),
            "ssl_disabled": not self.is_encrypted(),
            **_TIMEOUTS,
            "init_command": "set session transaction isolation level repeatable read",
        }
        self._database = database

    @contextmanager
    def session(self) -> Generator[MysqlQuery]:
        """Open a session of the conductor: in no database, which distinguishes it from those of workers."""
        try:
            with closing(Connection(**self._place)) as connection:
                yield MysqlQuery(connection, self.statements)
                connection.commit()
        except pymysql.MySQLError as error:
            raise StoreUnavailable(f"{self.shown} cannot be used: {error}") from error

    @contextmanager
    def connection(self) -> Generator[CallersConnection]:
        """Open a session as a worker does; what is not committed is rolled back."""
        try:
            connection = CallersConnection(**self._place, database=self._database)
        except pymysql.MySQLError as error:
            raise StoreUnavailable(f"{self.shown} cannot be reached: {error}") from error
        try:
            yield connection
        finally:
            if connection.open:
                connection.close()

    def remove(self) -> None:
        """Drop the database, whose every table the marker lists."""
        self.run("drop_database")

    def open_transactions(self) -> int:
        """Count them in a list that is not older than this call."""
        self.run("outdate")
        return super().open_transactions()

    def terminate(self, sessions: list[int]) -> int:
        """Kill sessions."""
        ended = 0
        with self.session() as query:
            for session in sessions:
                try:
                    query.all("terminate", session=session)
                    ended += 1
                except pymysql.MySQLError as error:
                    if error.args[0] != ER.NO_SUCH_THREAD:  # it has ended meanwhile
                        raise
        return ended

    def integrity(self) -> str:
        """Return what `check table` finds."""
        with self.session() as query:
            found = query.all("check_tables", names=", ".join(name for (name,) in query.all("tables")))
        return "; ".join(" ".join(map(str, row)) for row in found if row[3] != "OK")

    def proxy(self) -> Proxy:
        """Start a proxy before the server."""
        return Proxy(self.url, MysqlWire())

    def is_encrypted(self) -> bool:
        """Return whether the URL asks for TLS."""
        return self._query.get("tls", "off") != "off"
