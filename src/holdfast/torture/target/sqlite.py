"""A SQLite file as the target of a run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.target.base import Reserved, Target
from holdfast.torture.target.file_lock import held_file
from holdfast.torture.target.open_files import processes_with
from holdfast.torture.target.statements import TargetStatements

_BUSY = 30.0  # seconds
_JOURNALS = ("", "-wal", "-shm")
_LOCK = "-torture-lock"
_NUMBER = "integer primary key autoincrement"


class SqliteQuery:
    """`Query` in a read transaction."""

    def __init__(self, connection: sqlite3.Connection, statements: TargetStatements) -> None:
        self._connection = connection
        self._statements = statements

    def all(self, name: str, **names: str | int) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._connection.execute(self._statements.with_names(name, **names)).fetchall()

    def each(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Go over rows."""
        return iter(self._connection.execute(self._statements[name]))


class SqliteTarget(Target):
    """`Target` over a file."""

    store: ClassVar = "sqlite"
    one_writer: ClassVar = True
    errors = (sqlite3.Error,)

    def __init__(self, url: str) -> None:
        path = unquote(urlsplit(url).path.removeprefix("/"))
        if not path or path == ":memory:":
            raise ConfigError("torture needs a file: only one process can use a database in memory")
        self.path = Path(path).absolute()
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path} is not a file: name the database file, not a directory or a device")
        if not self.path.parent.is_dir():
            raise ConfigError(
                f"{self.path.parent} is no directory: create it, or name another place for the database after --url"
            )
        statements = TargetStatements("sqlite", at="holdfast_", mark="?", number=_NUMBER)
        super().__init__(url, f"sqlite:///{self.path}", statements)

    @contextmanager
    def _open(self, begin: str = "begin", *, busy: float = 0.0) -> Generator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=busy or _BUSY)) as connection:
                connection.execute(begin)
                yield connection
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise ConfigError(f"{self.path} is not a SQLite database: name another file") from error
            raise StoreUnavailable(f"{self.path} cannot be used: {error}") from error

    @contextmanager
    def reserved(self) -> Generator[None]:
        """Hold a lock file next to the database."""
        lock = Path(f"{self.path.resolve()}{_LOCK}")
        with ExitStack() as stack:
            try:
                stack.enter_context(held_file(lock))
            except BlockingIOError:
                raise Reserved(self.shown) from None
            except OSError as error:
                raise ConfigError(
                    f"the lock file {lock} cannot be created: {error.strerror}; make it possible, or name another "
                    "place for the database after --url"
                ) from error
            yield

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.exists()

    def remove(self) -> None:
        """Remove the file, whose every table the marker lists."""
        for ending in _JOURNALS:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)

    def run(self, *names: str) -> None:
        """Run statements."""
        with self._open("begin immediate") as connection:
            for name in names:
                connection.execute(self.statements[name])
            connection.execute("commit")

    @contextmanager
    def snapshot(self) -> Generator[SqliteQuery]:
        """Read in one transaction."""
        with self._open() as connection:
            yield SqliteQuery(connection, self.statements)

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Open a connection that holds the write lock."""
        with self._open("begin immediate", busy=_BUSY / 3) as connection:
            yield connection

    def clock(self) -> int:
        """Return the clock of the machine, which is the store's."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000

    def open_transactions(self) -> int:
        """Return 1 if a process still has the write lock."""
        with self._open() as connection:
            try:
                connection.execute("commit")
                connection.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return 1
        return 0

    def open_connections(self) -> int:
        """Return how many processes of runs have the file open."""
        return processes_with(self.path)

    def integrity(self) -> str:
        """Return what `integrity_check` finds."""
        with self._open() as connection:
            found = [row[0] for row in connection.execute("pragma integrity_check")]
        return "" if found == ["ok"] else "; ".join(found[:5])

    def versions(self) -> dict[str, str]:
        """Return the version and the settings of durability."""
        with self._open() as connection:
            journal = connection.execute("pragma journal_mode").fetchone()[0]
        synchronous = "normal" if "synchronous=normal" in self.url else "full"
        return {"sqlite": sqlite3.sqlite_version, "journal": journal, "synchronous": synchronous}
