"""A schema of a PostgreSQL database as the ground of a run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict

from holdfast.app.open import open_backend
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.events import EffectRow, JobRow
from holdfast.torture.names import EFFECTS, schema_beside, sessions_in
from holdfast.torture.target.base import (
    CLEARED,
    NOTHING,
    STATES,
    Leftovers,
    Reserved,
    effect_row,
    joined,
    wrong,
)
from holdfast.torture.target.postgres_schema import clear, drop_whole, look, number, run
from holdfast.torture.target.statements import postgres_statements
from holdfast.torture.urls import joined as joined_url
from holdfast.torture.urls import postgres_url

_NAME = "holdfast-torture-conductor"
_PATIENCE = 5  # seconds
_LAST_PORT = 65535
_PAGE = 20_000
_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes")


class PostgresGround:
    """`Ground` over a schema."""

    kind = "postgresql"

    def __init__(self, url: str) -> None:
        open_backend(url)  # refuses what is no URL
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        query.pop("application_name", None)
        schema = schema_beside(query.pop("schema", None))
        plain = joined_url(parts, {**query, "schema": schema}.items())
        self._shown = open_backend(plain).url  # refuses what is no name of a schema, and hides the password
        name = sessions_in(schema)
        self.url = joined_url(parts, {**query, "application_name": name, "schema": schema}.items())
        self._driver_url = postgres_url(plain)
        self._require_port()
        self._say = postgres_statements(schema, sessions=name)
        self._reservation: Connection[Any] | None = None
        self._makes_it = False
        """Whether there was no such schema, or nothing but runs in it, before this run."""
        self._is_shared = False
        """Whether the schema holds anything of others, too; counting is dearer then."""
        self._looked_at_indexes = "not checked"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return self._shown

    def _require_port(self) -> None:
        ports = str(conninfo_to_dict(self._driver_url).get("port") or "")
        if not all(port.isdecimal() and 0 < int(port) <= _LAST_PORT for port in ports.split(",") if port):
            raise ConfigError(f"{self._shown}: the port {ports!r} cannot be: give a number such as 5432, or none")

    def _connected(self, *, autocommit: bool) -> Connection[Any]:
        try:
            return psycopg.connect(
                self._driver_url, autocommit=autocommit, connect_timeout=_PATIENCE, application_name=_NAME
            )
        except psycopg.Error as error:  # its text may hold the whole conninfo, so only the first line is passed on
            raise StoreUnavailable(f"{self._shown} cannot be reached: {_words(error)}") from None

    @contextmanager
    def _open(self, *, autocommit: bool = True) -> Generator[Connection[Any]]:
        connection = self._connected(autocommit=autocommit)
        try:
            with connection:
                yield connection
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self._shown} cannot be used: {_words(error)}") from error

    @contextmanager
    def reserved(self) -> Generator[None]:
        """Hold a lock of the server, in a transaction that is open as long."""
        self._reservation = self._reserve()
        try:
            yield
        finally:
            self._reservation.close()
            self._reservation = None

    def _reserve(self) -> Connection[Any]:
        connection = self._connected(autocommit=False)
        try:
            run(connection, self._say["outlast"])
            if number(connection, self._say["reserve"]):
                return connection
        except psycopg.Error as error:
            connection.close()
            raise StoreUnavailable(f"{self._shown} cannot be used: {_words(error)}") from error
        connection.close()
        raise Reserved(self._shown)

    def _require_reservation(self) -> None:
        """Take the lock again if its session was lost, as when the server restarts; another run may have it by now."""
        if self._reservation is None:
            return
        try:
            run(self._reservation, self._say["still_there"])
        except psycopg.Error:
            self._reservation.close()
            self._reservation = self._reserve()

    def foreign(self) -> int:
        """Count the jobs of other queues, categories and consumers of others, and whatever is no table of ours."""
        with self._open() as connection:
            return look(connection, self._say).foreign

    def prepare(self) -> None:
        """Make the tables of the run."""
        with self._open() as connection:
            if self._makes_it:
                run(connection, self._say["mark_as_made"])
                self._makes_it = False
            for name in EFFECTS:
                for step in ("drop", "create", "index"):
                    run(connection, self._say[f"{step}_{name}"])

    def wipe(self) -> str:
        """Drop a schema that a run has made and that holds nothing but runs; else what is of runs in it."""
        self._require_reservation()
        with self._open(autocommit=False) as connection:
            found = look(connection, self._say)
            self._is_shared = found.foreign > 0
            self._makes_it = not found.exists or (found.is_made_by_a_run and not self._is_shared)
            if not found.exists:
                return NOTHING
            if not self._makes_it:
                clear(connection, self._say, found.tables)
                return CLEARED
            drop_whole(connection, self._say, found.tables)
        return "The schema of the run is gone."

    def clock(self) -> int:
        """Return the server's clock."""
        with self._open() as connection:
            return number(connection, self._say["clock"])

    def counts(self) -> Mapping[str, int]:
        """Count by state."""
        with self._open(autocommit=False) as connection:
            run(connection, self._say["frozen"])
            return {state: self._count(connection, state) for state in self._states(connection)}

    def _count(self, connection: Connection[Any], state: str) -> int:
        statement = "count_state" if self._is_shared else "count_state_alone"
        return number(connection, self._say.with_names(statement, state=state))

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Look at the latest effects."""
        with self._open() as connection:
            last = number(connection, self._say["count_effects"])
            return last, number(connection, self._say.with_names("doubled_effects", after=after))

    def rows(self) -> Iterator[JobRow]:
        """Dump all jobs."""
        with self._open(autocommit=False) as connection:
            run(connection, self._say["frozen"])
            parts = " union all ".join(self._say[f"rows_{state}"] for state in self._states(connection))
            with connection.cursor("jobs") as jobs, connection.cursor("attempts") as attempts:
                jobs.itersize = attempts.itersize = _PAGE
                jobs.execute(_trusted(f"{parts} order by seq"))
                attempts.execute(_trusted(self._say["all_attempts"]))
                yield from joined(iter(jobs), iter(attempts))

    def effects(self) -> Iterator[EffectRow]:
        """Dump all effects."""
        with self._open(autocommit=False) as connection, connection.cursor("effects") as found:
            found.itersize = _PAGE
            found.execute(_trusted(self._say["all_effects"]))
            for row in found:
                yield effect_row(row)

    def wrong_steps(self) -> list[tuple[str, str]]:
        """Compare effects with their steps, and with the order of their keys."""
        with self._open() as connection:
            doubled = run(connection, self._say["doubled_steps"]).fetchall()
            missing = run(connection, self._say["missing_steps"]).fetchall()
            early = run(connection, self._say["wrong_order"]).fetchall()
        return wrong(doubled, missing, early)

    def leftovers(self) -> Leftovers:
        """Look for leases, open transactions and sessions of workers, and damaged indexes."""
        with self._open() as connection:
            return Leftovers(
                leases=self._count(connection, "running"),
                transactions=number(connection, self._say["count_open"]),
                connections=number(connection, self._say["count_sessions"]),
                integrity=self._damage(),
            )

    def _damage(self) -> str:
        """Compare every index with its table by amcheck, and leave no trace of it; return what is wrong."""
        with self._open(autocommit=False) as connection:
            try:
                run(connection, self._say["make_amcheck"])
                count = len(run(connection, self._say["check_indexes"]).fetchall())
            except (psycopg.errors.IndexCorrupted, psycopg.errors.DataCorrupted) as error:
                self._looked_at_indexes = "damaged"
                return _words(error)
            except psycopg.Error as error:  # not installed, not for this role, or gone meanwhile
                self._looked_at_indexes = f"not checked: {_words(error)}"
                return ""
            finally:
                connection.rollback()
            self._looked_at_indexes = f"{count} checked"
        return ""

    def is_encrypted(self) -> bool:
        """Tell whether the server and the driver have agreed on TLS."""
        with self._open() as connection:
            return connection.pgconn.ssl_in_use

    @contextmanager
    def held_snapshot(self) -> Generator[None]:
        """Hold a snapshot open: dead rows cannot be removed meanwhile."""
        with self._open(autocommit=False) as connection:
            run(connection, self._say["frozen"])
            run(connection, self._say["hold"])
            yield

    def sessions(self) -> list[int]:
        """Return the sessions of workers and producers."""
        with self._open() as connection:
            return [row[0] for row in run(connection, self._say["sessions"]).fetchall()]

    def terminate(self, pids: list[int]) -> int:
        """Terminate sessions; return how many there still were."""
        with self._open() as connection:
            return sum(number(connection, self._say.with_names("terminate", pid=pid)) for pid in pids)

    def versions(self) -> dict[str, str]:
        """Return the version and what concerns durability."""
        with self._open() as connection:
            found = {
                name: str(run(connection, self._say.with_names("show", setting=name)).fetchone()[0])
                for name in _SETTINGS
            }
        return {**found, "indexes": self._looked_at_indexes}

    def _tables(self, connection: Connection[Any]) -> set[str]:
        return {row[0] for row in run(connection, self._say["tables"]).fetchall()}

    def _states(self, connection: Connection[Any]) -> list[str]:
        tables = self._tables(connection)
        return [state for state in STATES if state in tables]


def _trusted(statement: str) -> Any:
    """Statements here are made of our own names alone, and the schema's was checked when the URL was read."""
    return statement


def _words(error: psycopg.Error) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
