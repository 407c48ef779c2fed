"""A schema of a PostgreSQL database as the target of a run."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import Connection

from holdfast.app.open import open_backend
from holdfast.errors import StoreUnavailable
from holdfast.torture.names import schema_of_runs, sessions_in
from holdfast.torture.proxy import Proxy
from holdfast.torture.target.base import Foreign
from holdfast.torture.target.on_server import ServerTarget
from holdfast.torture.target.statements import TargetStatements
from holdfast.torture.urls import joined, postgres_url, require_port

_NAME = "holdfast-torture-conductor"
_CONNECTING = 5  # seconds
_PAGE = 20_000
_NUMBER = "bigint primary key generated always as identity"


class PostgresQuery:
    """`Query` in a transaction. Its statements are of our own names; that of the schema was checked with the URL."""

    def __init__(self, connection: Connection[Any], statements: TargetStatements) -> None:
        self._connection = connection
        self._statements = statements

    def all(self, name: str, **names: str | int) -> list[tuple[Any, ...]]:
        """Return all rows."""
        trusted: Any = self._statements.with_names(name, **names)
        found = self._connection.execute(trusted)
        return found.fetchall() if found.description else []

    def each(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Go over rows, page by page."""
        trusted: Any = self._statements[name]
        with self._connection.cursor(name) as rows:
            rows.itersize = _PAGE
            rows.execute(trusted)
            yield from rows


class PostgresTarget(ServerTarget):
    """`Target` over a schema: that of the URL with a suffix, which no app uses."""

    store: ClassVar = "postgresql"
    has_pipelines: ClassVar = True
    settings: ClassVar = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
    creating: ClassVar = ("create_schema", "create_marker")
    errors = (psycopg.Error,)

    def __init__(self, url: str) -> None:
        open_backend(url)  # refuses what is no URL
        parts = urlsplit(url)
        query = {name: value for name, value in parse_qsl(parts.query) if name != "application_name"}
        schema = schema_of_runs(query.pop("schema", None))
        plain, sessions = joined(parts, {**query, "schema": schema}.items()), sessions_in(schema)
        names = {"at": f'"{schema}".', "schema": schema, "sessions": sessions}
        statements = TargetStatements("postgres", mark="%s", number=_NUMBER, **names)
        shown = open_backend(plain).url  # refuses what is no name of a schema, and hides the password
        query |= {"application_name": sessions, "schema": schema}
        super().__init__(joined(parts, query.items()), shown, statements)
        self._driver_url = postgres_url(plain)
        require_port(self._driver_url, shown)
        self._checked_indexes = "not checked"

    def _connect(self, url: str, name: str | None = _NAME) -> Connection[Any]:
        try:
            return psycopg.connect(url, connect_timeout=_CONNECTING, application_name=name)
        except psycopg.Error as error:  # its text may hold the whole conninfo, so only the first line is passed on
            raise StoreUnavailable(f"{self.shown} cannot be reached: {_first_line(error)}") from None

    @contextmanager
    def session(self) -> Generator[PostgresQuery]:
        """Open a session of the conductor."""
        connection = self._connect(self._driver_url)
        try:
            with connection:
                yield PostgresQuery(connection, self.statements)
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self.shown} cannot be used: {_first_line(error)}") from error

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """Open a session under the name of the workers'; what is not committed is rolled back."""
        connection = self._connect(postgres_url(self.url), None)
        try:
            yield connection
        finally:
            connection.close()

    def remove(self) -> None:
        """Drop the tables and sequences that the marker lists, and then the schema, in one transaction."""
        try:
            with self.session() as query:
                listed = query.all("listed_now")
                for kind, what in (("r", "table"), ("S", "sequence")):
                    if names := ", ".join(name for found, name in listed if found == kind):
                        query.all("drop_listed", what=what, names=names)
                query.all("drop_schema")
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, psycopg.errors.DependentObjectsStillExist):
                raise
            found = "; ".join((error.__cause__.diag.message_detail or str(error)).splitlines())
            raise Foreign(
                f"what a run has left in {self.shown} cannot be removed, for something else depends on it ({found}): "
                "drop that, or name another schema"
            ) from error

    def integrity(self) -> str:
        """Compare every index with its table by amcheck, and leave no trace of it; return what is wrong."""
        with self._connect(self._driver_url) as connection:
            query = PostgresQuery(connection, self.statements)
            try:
                query.all("make_amcheck")
                self._checked_indexes = f"{len(query.all('check_indexes'))} checked"
            except (psycopg.errors.IndexCorrupted, psycopg.errors.DataCorrupted) as error:
                self._checked_indexes = "damaged"
                return _first_line(error)
            except psycopg.Error as error:  # not installed, not for this role, or gone meanwhile
                self._checked_indexes = f"not checked: {_first_line(error)}"
            finally:
                connection.rollback()
        return ""

    def versions(self) -> dict[str, str]:
        """Return the settings of the server, and whether the indexes were checked."""
        return {**super().versions(), "indexes": self._checked_indexes}

    def proxy(self) -> Proxy:
        """Start a proxy before the server."""
        return Proxy(self.url)

    def is_encrypted(self) -> bool:
        """Return whether the server and the driver have agreed on TLS."""
        with self._connect(self._driver_url) as connection:
            return connection.pgconn.ssl_in_use


def _first_line(error: psycopg.Error) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
