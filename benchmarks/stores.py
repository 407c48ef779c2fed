"""Fresh databases for a benchmark, and what is in them afterwards, read with the driver alone.

A store is named by a URL, but the data behind the URL is never touched: SQLite files are made beside the one that it
names, on PostgreSQL a schema, on MySQL a database and on Redis a store with a name of its own. All are removed at the
end.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from benchmarks.raw import sqlite as raw_sqlite
from benchmarks.raw.common import Held as RawHeld

COUNTS = """
select (select count(distinct id) from holdfast_job), (select count(*) from holdfast_ready),
       (select count(*) from holdfast_running) + (select count(*) from holdfast_scheduled),
       (select count(*) from holdfast_completed),
       (select count(*) from holdfast_failed) + (select count(*) from holdfast_cancelled),
       (select coalesce(max(attempt), 0) from holdfast_completed)
"""
"""Of the tables with a prefix, as on SQLite and MySQL."""


class Held(NamedTuple):
    """What the store holds: distinct ids, and jobs by where they stand."""

    ids: int
    ready: int
    underway: int
    completed: int
    given_up: int
    highest_attempt: int


class Place(NamedTuple):
    """A fresh database: where Holdfast finds it, and where the driver does."""

    url: str
    raw: str


class Inserter(NamedTuple):
    """Raw enqueues on one connection: many in one transaction, one in its own, and what is there afterwards."""

    bulk: Callable[[int], None]
    one: Callable[[int], None]
    held: Callable[[], RawHeld]


class Yardstick(Protocol):
    """The hand-written loop of a store: a module of `benchmarks.raw`."""

    @property
    def PROGRAM(self) -> str: ...  # noqa: N802 - a constant of a module
    def create(self, target: str, /) -> None: ...
    def connect(self, target: str, /) -> Any: ...
    def bulk(self, connection: Any, count: int, /) -> None: ...
    def one(self, connection: Any, number: int, /) -> None: ...
    def held(self, target: str, /) -> RawHeld: ...
    def span(self, target: str, /) -> float: ...


class Store(Protocol):
    """Databases of one run."""

    name: str
    raw: Yardstick

    @property
    def version(self) -> str:
        """What the store says of itself."""
        ...

    @property
    def driver(self) -> str:
        """The driver, with its version."""
        ...

    def fresh(self) -> AbstractContextManager[Place]:
        """Give a database that holds nothing yet; remove it at the end."""
        ...

    def held(self, place: Place) -> Held:
        """Count what Holdfast's tables hold."""
        ...

    def span(self, place: Place, since: int = 0) -> float:
        """Return the seconds from the first claim (of those since an instant) to the last completion, by the ledger."""
        ...

    def now(self) -> int:
        """Return the store's time in microseconds."""
        ...

    def completed(self, place: Place) -> int:
        """Return how many jobs are completed, by the ledger."""
        ...

    def snapshot(self, place: Place) -> AbstractContextManager[None]:
        """Hold a snapshot open, so that nothing can be cleaned away that was there when it began, or came since."""
        ...

    def inserting(self, place: Place) -> AbstractContextManager[Inserter]:
        """Give raw enqueues into a fresh database."""
        ...

    def foreign(self) -> AbstractContextManager[str]:
        """Give a database to a program that is not ours and may do in it what it likes; remove it at the end."""
        ...

    def metered(self, place: Place) -> AbstractContextManager[Callable[[], Mapping[str, float]]]:
        """Measure what the store spends inside the block: unit by name, known once the block has ended."""
        ...


class SqliteStore:
    """Files in a directory that is removed at the end."""

    name = "sqlite"
    driver = "sqlite3"
    raw: Yardstick = raw_sqlite

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory

    @property
    def version(self) -> str:
        return sqlite3.sqlite_version

    @contextmanager
    def fresh(self) -> Generator[Place]:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=self.directory) as directory:
            path = f"{directory}/bench.db"
            yield Place(f"sqlite:///{path}", path)

    def held(self, place: Place) -> Held:
        with closing(sqlite3.connect(place.raw)) as connection:
            numbers: tuple[int, ...] = connection.execute(COUNTS).fetchone()
        return Held(*numbers)

    def span(self, place: Place, since: int = 0) -> float:
        statement = "select max(finished_at) - min(started_at) from holdfast_completed where started_at >= ?"
        with closing(sqlite3.connect(place.raw)) as connection:
            (micros,) = connection.execute(statement, (since,)).fetchone()
        return float(micros) / 1e6

    def now(self) -> int:
        return time.time_ns() // 1000

    def completed(self, place: Place) -> int:
        with closing(sqlite3.connect(place.raw)) as connection:
            (count,) = connection.execute("select count(*) from holdfast_completed").fetchone()
        return int(count)

    @contextmanager
    def snapshot(self, place: Place) -> Generator[None]:
        with closing(sqlite3.connect(place.raw, isolation_level=None)) as connection:
            connection.execute("begin")
            connection.execute("select count(*) from holdfast_job").fetchone()
            yield
            connection.execute("rollback")

    @contextmanager
    def inserting(self, place: Place) -> Generator[Inserter]:
        raw_sqlite.create(place.raw)
        with closing(raw_sqlite.connect(place.raw)) as connection:
            yield Inserter(
                partial(raw_sqlite.bulk, connection),
                partial(raw_sqlite.one, connection),
                partial(raw_sqlite.held, place.raw),
            )

    @contextmanager
    def foreign(self) -> Generator[str]:
        with self.fresh() as place:
            yield place.raw

    @contextmanager
    def metered(self, place: Place) -> Generator[Callable[[], Mapping[str, float]]]:  # noqa: ARG002 - as the protocol
        yield dict


class UnknownStoreError(ValueError):
    """The URL names no store that benchmarks know, or one whose driver is missing."""


class UnreachableError(Exception):
    """The server cannot be reached."""


def store_of(url: str | None) -> Store:
    """Return the store that a URL names; None: SQLite in the system's folder for temporary files."""
    if url is None:
        return SqliteStore()
    try:
        parts = urlsplit(url)
    except ValueError as error:
        message = f"the URL cannot be read: {error}"
        raise UnknownStoreError(message) from None
    if parts.scheme == "sqlite":
        return SqliteStore(_directory(parts.path.removeprefix("/")))
    if parts.scheme in {"postgresql", "postgres"}:
        try:
            from benchmarks.postgres_store import PostgresStore
        except ImportError as error:
            message = f"benchmarks on PostgreSQL need psycopg: pip install 'holdfast[postgres]' ({error})"
            raise UnknownStoreError(message) from None
        return PostgresStore(url)
    if parts.scheme in {"mysql", "mariadb"}:
        try:
            from benchmarks.mysql_store import MysqlStore
        except ImportError as error:
            message = f"benchmarks on MySQL need asyncmy and PyMySQL: pip install 'holdfast[mysql]' ({error})"
            raise UnknownStoreError(message) from None
        return MysqlStore(url)
    if parts.scheme in {"redis", "rediss", "valkey", "valkeys"}:
        try:
            from benchmarks.redis_store import RedisStore
        except ImportError as error:
            message = f"benchmarks on Redis need redis-py: pip install 'holdfast[redis]' ({error})"
            raise UnknownStoreError(message) from None
        return RedisStore(url)
    message = (
        "benchmarks know sqlite:///some/where/bench.db, postgresql://user@host/database, mysql://user@host/ and "
        f"redis://host/0, not {parts.scheme}:"
    )
    raise UnknownStoreError(message)


def _directory(name: str) -> str | None:
    if not name:
        return None
    directory = Path(unquote(name)).absolute().parent
    if not directory.is_dir():
        message = f"there is no directory {directory} to make databases in"
        raise UnknownStoreError(message)
    return str(directory)
