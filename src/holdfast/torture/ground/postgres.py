"""A schema of a PostgreSQL database as the ground of a run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import Connection

from holdfast.app.open import open_backend
from holdfast.errors import StoreUnavailable
from holdfast.torture.events import EffectRow, JobRow
from holdfast.torture.ground.base import (
    CLEARED,
    CLEARING,
    FOREIGN,
    STATES,
    TABLES,
    Leftovers,
    effect_row,
    joined,
    wrong,
)
from holdfast.torture.ground.statements import postgres_statements
from holdfast.torture.names import EFFECTS, SESSIONS, schema_beside
from holdfast.torture.urls import postgres_url

_NAME = "holdfast-torture-conductor"
_PATIENCE = 5  # seconds
_PAGE = 20_000
_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes")


class PostgresGround:
    """`Ground` over a schema."""

    kind = "postgresql"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        schema = query["schema"] = schema_beside(query.get("schema"))
        self.url = urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))
        self._shown = open_backend(self.url).url  # refuses what is no URL or no name, and hides the password
        self._driver_url = postgres_url(self.url)
        self._say = postgres_statements(schema, sessions=SESSIONS)
        self._is_shared = False
        """Whether the schema holds jobs of others, too; counting is dearer then."""
        self._looked_at_indexes = "not checked"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return self._shown

    @contextmanager
    def _open(self, *, autocommit: bool = True) -> Generator[Connection[Any]]:
        try:
            connection = psycopg.connect(
                self._driver_url, autocommit=autocommit, connect_timeout=_PATIENCE, application_name=_NAME
            )
        except psycopg.Error as error:  # its text may hold the whole conninfo, so only the first line is passed on
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreUnavailable(f"{self._shown} cannot be reached: {reason}") from None
        with connection:
            yield connection

    def foreign(self) -> int:
        """Count the jobs of other queues, and categories and consumers of others."""
        with self._open() as connection:
            tables = self._tables(connection)
            return sum(_number(connection, self._say[name]) for table, name in FOREIGN.items() if table in tables)

    def prepare(self) -> None:
        """Make the tables of the run."""
        with self._open() as connection:
            for name in EFFECTS:
                for step in ("drop", "create", "index"):
                    _run(connection, self._say[f"{step}_{name}"])

    def wipe(self) -> str:
        """Drop the schema, if it holds nothing but runs; else what is of runs in it."""
        self._is_shared = bool(self.foreign())
        if self._is_shared:
            self._clear()
            return CLEARED
        with self._open() as connection:
            _run(connection, self._say["drop_schema"])
        return "The schema of the run is gone."

    def _clear(self) -> None:
        with self._open(autocommit=False) as connection:
            there = self._tables(connection)
            for table, statement in CLEARING:
                if table in there:
                    _run(connection, self._say.with_names(statement, table=table))
            for name in TABLES:
                _run(connection, self._say[f"drop_{name}"])

    def clock(self) -> int:
        """Return the server's clock."""
        with self._open() as connection:
            return _number(connection, self._say["clock"])

    def counts(self) -> Mapping[str, int]:
        """Count by state."""
        with self._open(autocommit=False) as connection:
            _run(connection, self._say["frozen"])
            return {state: self._count(connection, state) for state in self._states(connection)}

    def _count(self, connection: Connection[Any], state: str) -> int:
        statement = "count_state" if self._is_shared else "count_state_alone"
        return _number(connection, self._say.with_names(statement, state=state))

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Look at the latest effects."""
        with self._open() as connection:
            last = _number(connection, self._say["count_effects"])
            return last, _number(connection, self._say.with_names("doubled_effects", after=after))

    def rows(self) -> Iterator[JobRow]:
        """Dump all jobs."""
        with self._open(autocommit=False) as connection:
            _run(connection, self._say["frozen"])
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
            doubled = _run(connection, self._say["doubled_steps"]).fetchall()
            missing = _run(connection, self._say["missing_steps"]).fetchall()
            early = _run(connection, self._say["wrong_order"]).fetchall()
        return wrong(doubled, missing, early)

    def leftovers(self) -> Leftovers:
        """Look for leases, open transactions and sessions of workers, and damaged indexes."""
        with self._open() as connection:
            return Leftovers(
                leases=self._count(connection, "running"),
                transactions=_number(connection, self._say["count_open"]),
                connections=_number(connection, self._say["count_sessions"]),
                integrity=self._damage(),
            )

    def _damage(self) -> str:
        """Compare every index with its table by amcheck, and leave no trace of it; return what is wrong."""
        with self._open(autocommit=False) as connection:
            try:
                _run(connection, self._say["make_amcheck"])
            except psycopg.Error as error:  # not installed, or not for this role
                self._looked_at_indexes = f"not checked: {str(error).splitlines()[0]}"
                connection.rollback()
                return ""
            try:
                count = len(_run(connection, self._say["check_indexes"]).fetchall())
            except (psycopg.errors.IndexCorrupted, psycopg.errors.DataCorrupted) as error:
                self._looked_at_indexes = "damaged"
                return str(error).splitlines()[0]
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
            _run(connection, self._say["frozen"])
            _run(connection, self._say["hold"])
            yield

    def sessions(self) -> list[int]:
        """Return the sessions of workers and producers."""
        with self._open() as connection:
            return [row[0] for row in _run(connection, self._say["sessions"]).fetchall()]

    def terminate(self, pids: list[int]) -> int:
        """Terminate sessions; return how many there still were."""
        with self._open() as connection:
            return sum(_number(connection, self._say.with_names("terminate", pid=pid)) for pid in pids)

    def versions(self) -> dict[str, str]:
        """Return the version and what concerns durability."""
        with self._open() as connection:
            found = {
                name: str(_run(connection, self._say.with_names("show", setting=name)).fetchone()[0])
                for name in _SETTINGS
            }
        return {**found, "indexes": self._looked_at_indexes}

    def _tables(self, connection: Connection[Any]) -> set[str]:
        return {row[0] for row in _run(connection, self._say["tables"]).fetchall()}

    def _states(self, connection: Connection[Any]) -> list[str]:
        tables = self._tables(connection)
        return [state for state in STATES if state in tables]


def _trusted(statement: str) -> Any:
    """Statements here are made of our own names alone, and the schema's was checked when the URL was read."""
    return statement


def _run(connection: Connection[Any], statement: str) -> Any:
    return connection.execute(_trusted(statement))


def _number(connection: Connection[Any], statement: str) -> int:
    return int(_run(connection, statement).fetchone()[0])
