"""A SQLite file as the ground of a run."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.events import EffectRow, JobRow
from holdfast.torture.names import EFFECTS
from holdfast.torture.recorder import RUN
from holdfast.torture.target.base import (
    CLEARED,
    CLEARING,
    FOREIGN,
    INSTALLED,
    MADE,
    NOTHING,
    STATES,
    TABLES,
    Leftovers,
    Reserved,
    effect_row,
    joined,
    wrong,
)
from holdfast.torture.target.file_lock import held_file
from holdfast.torture.target.statements import listed, sqlite_statements
from holdfast.torture.urls import sqlite_path

_BUSY = 30.0  # seconds
_JOURNALS = ("", "-wal", "-shm")
_OURS = "holdfast_"
_MADE = f"{_OURS}{MADE}"
_KNOWN = listed(sorted(f"{_OURS}{name}" for name in {*INSTALLED, "count"}))
_LOCK = "-torture-lock"
"""What the name of the file ends with that a run holds beside the store."""


class SqliteGround:
    """`Ground` over a file."""

    kind = "sqlite"

    def __init__(self, url: str) -> None:
        path = sqlite_path(url)
        if not path or path == ":memory:":
            raise ConfigError("torture needs a file: a database in memory is seen by one process alone")
        self.path = Path(path).absolute()
        self._require_room()
        self.url = url
        self._say = sqlite_statements()
        self._makes_it = not self.path.exists()

    @property
    def shown(self) -> str:
        """The URL."""
        return f"sqlite:///{self.path}"

    def _require_room(self) -> None:
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path} is not a file: name the database file, not a directory or a device")
        if not self.path.parent.is_dir():
            raise ConfigError(
                f"{self.path.parent} is no directory: create it, or name another place for the database after --url"
            )

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=_BUSY)) as connection:
                yield connection
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise ConfigError(f"{self.path} is not a SQLite database: name another file") from error
            raise StoreUnavailable(f"{self.path} cannot be used: {error}") from error

    @contextmanager
    def reserved(self) -> Generator[None]:
        """Hold a file beside the store."""
        lock = Path(f"{self.path.resolve()}{_LOCK}")
        with ExitStack() as stack:
            try:
                stack.enter_context(held_file(lock))
            except BlockingIOError:
                raise Reserved(self.shown) from None
            except OSError as error:
                raise ConfigError(
                    f"{lock}, which keeps other runs away, cannot be made: {error.strerror}; make it possible, or name "
                    "another place for the database after --url"
                ) from error
            yield

    def foreign(self) -> int:
        """Count the jobs of other queues, categories and consumers of others, and whatever is no table of ours."""
        if not self.path.exists():
            return 0
        with self._open() as connection:
            tables = self._tables(connection)
            strangers = _number(connection, self._say.with_names("count_strangers", known=_KNOWN))
            for table, statement in FOREIGN.items():
                if f"{_OURS}{table}" in tables:
                    strangers += _number(connection, self._say[statement])
            return strangers

    def prepare(self) -> None:
        """Make the tables of the run."""
        with self._open() as connection:
            if self._makes_it and _MADE not in self._tables(connection):
                connection.execute(self._say["mark_as_made"])
            for name in EFFECTS:
                for step in ("drop", "create", "index"):
                    connection.execute(self._say[f"{step}_{name}"])

    def wipe(self) -> str:
        """Remove a file that a run has made and nobody else uses; else what is of runs in it."""
        if not self.path.exists():
            self._makes_it = True
            return NOTHING
        with self._open() as connection:
            was_made = _MADE in self._tables(connection)
        if self.foreign() or not was_made:
            self._clear()
            return CLEARED
        for ending in _JOURNALS:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        self._makes_it = True
        return f"{self.path} is gone."

    def _clear(self) -> None:
        with self._open() as connection:
            connection.execute("begin immediate")
            there = self._tables(connection)
            for table, statement in CLEARING:
                if f"{_OURS}{table}" in there:
                    connection.execute(self._say.with_names(statement, table=table))
            for name in TABLES:
                connection.execute(self._say[f"drop_{name}"])
            connection.execute("commit")

    def clock(self) -> int:
        """Return the clock of the machine, which is the store's: SQLite's own words for it are coarser."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000

    def counts(self) -> Mapping[str, int]:
        """Count by state."""
        with self._open() as connection:
            connection.execute("begin")
            return {state: self._count(connection, state) for state in self._states(connection)}

    def _count(self, connection: sqlite3.Connection, state: str) -> int:
        return _number(connection, self._say.with_names("count_state", state=state))

    def effects_seen(self, after: int) -> tuple[int, int]:
        """Look at the latest effects."""
        with self._open() as connection:
            last = _number(connection, self._say["count_effects"])
            return last, _number(connection, self._say.with_names("doubled_effects", after=after))

    def rows(self) -> Iterator[JobRow]:
        """Dump all jobs."""
        with self._open() as connection:
            connection.execute("begin")
            parts = " union all ".join(self._say[f"rows_{state}"] for state in self._states(connection))
            jobs = connection.execute(f"{parts} order by seq")
            attempts = connection.execute(self._say["all_attempts"])
            yield from joined(iter(jobs), iter(attempts))

    def effects(self) -> Iterator[EffectRow]:
        """Dump all effects."""
        with self._open() as connection:
            for row in connection.execute(self._say["all_effects"]):
                yield effect_row(row)

    def wrong_steps(self) -> list[tuple[str, str]]:
        """Compare effects with their steps, and with the order of their keys."""
        with self._open() as connection:
            doubled = connection.execute(self._say["doubled_steps"]).fetchall()
            missing = connection.execute(self._say["missing_steps"]).fetchall()
            early = connection.execute(self._say["wrong_order"]).fetchall()
        return wrong(doubled, missing, early)

    def leftovers(self) -> Leftovers:
        """Look for leases, a writer that has not let go, and damage."""
        with self._open() as connection:
            found = [row[0] for row in connection.execute("pragma integrity_check")]
            leases = self._count(connection, "running")
            try:
                connection.execute("begin immediate")  # waits, and then raises, if somebody still writes
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                transactions = 1
            else:
                transactions = 0
        return Leftovers(
            leases=leases,
            transactions=transactions,
            connections=_connected(self.path),
            integrity="" if found == ["ok"] else "; ".join(found[:5]),
        )

    def is_encrypted(self) -> bool:
        """There is no way on which anything could be read."""
        return False

    @contextmanager
    def held_snapshot(self) -> Generator[None]:
        """Hold a read transaction open: the log of the database cannot be reset meanwhile."""
        with self._open() as connection:
            connection.execute("begin")
            connection.execute(self._say["hold"]).fetchone()
            yield

    def versions(self) -> dict[str, str]:
        """Return the version and what concerns durability."""
        with self._open() as connection:
            journal = connection.execute("pragma journal_mode").fetchone()[0]
        synchronous = "normal" if "synchronous=normal" in self.url else "full"
        return {"sqlite": sqlite3.sqlite_version, "journal": journal, "synchronous": synchronous}

    def _tables(self, connection: sqlite3.Connection) -> set[str]:
        return {row[0] for row in connection.execute(self._say["tables"])}

    def _states(self, connection: sqlite3.Connection) -> list[str]:
        tables = self._tables(connection)
        return [state for state in STATES if f"{_OURS}{state}" in tables]


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def _connected(path: Path) -> int:
    """Count the processes of runs that have a file open, as far as this system tells."""
    return sum(
        RUN.encode() in _words(process / "environ") and any(_leads_to(path, link) for link in _links(process))
        for process in Path("/proc").glob("[0-9]*")
        if process.name != str(os.getpid())
    )


def _words(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _links(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def _leads_to(path: Path, link: Path) -> bool:
    try:
        return link.samefile(path)
    except OSError:
        return False
