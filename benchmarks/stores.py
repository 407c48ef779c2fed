"""Fresh databases for a benchmark, and what is in them afterwards, read with the driver alone."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_COUNTS = """
select (select count(distinct id) from holdfast_job), (select count(*) from holdfast_ready),
       (select count(*) from holdfast_running) + (select count(*) from holdfast_scheduled),
       (select count(*) from holdfast_completed),
       (select count(*) from holdfast_failed) + (select count(*) from holdfast_cancelled),
       (select coalesce(max(attempt), 0) from holdfast_completed)
"""


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
    path: str


class SqliteStore:
    """Databases of one run, in a directory that is removed at the end."""

    name = "sqlite"

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory

    @property
    def version(self) -> str:
        return sqlite3.sqlite_version

    @contextmanager
    def fresh(self) -> Generator[Place]:
        """Give a database that does not exist yet; remove it at the end."""
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=self._directory) as directory:
            path = f"{directory}/bench.db"
            yield Place(f"sqlite:///{path}", path)

    def held(self, place: Place) -> Held:
        """Count what Holdfast's tables hold."""
        connection = sqlite3.connect(place.path)
        numbers: tuple[int, ...] = connection.execute(_COUNTS).fetchone()
        connection.close()
        return Held(*numbers)

    def span(self, place: Place) -> float:
        """Return the seconds from the first claim to the last completion, by the ledger."""
        connection = sqlite3.connect(place.path)
        (micros,) = connection.execute("select max(finished_at) - min(started_at) from holdfast_completed").fetchone()
        connection.close()
        return float(micros) / 1e6


def store_of(url: str | None) -> SqliteStore:
    """Return the store that a URL names; databases are made beside the file that it names, never in it."""
    if url is None:
        return SqliteStore()
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        message = f"{url!r}: benchmarks know only sqlite so far: sqlite:///some/where/bench.db, or leave it out"
        raise ValueError(message)
    path = Path(unquote(parts.path.removeprefix("/")) or ".")
    return SqliteStore(str(path.absolute().parent) if parts.path.removeprefix("/") else None)
