"""Processes that write to the same file, one of them without ever pausing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.app.open import open_backend
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.location import SqliteLocation
from holdfast.errors import StoreUnavailable
from holdfast.testing.conformance.base import a_job, enqueue

WRITES_WITHOUT_PAUSE = """
import os, sqlite3, sys
raw = sqlite3.connect(sys.argv[1], timeout=30.0, isolation_level=None)
raw.execute("pragma synchronous = full")
raw.execute("create table theirs (text)")
print("began", flush=True)
while True:
    raw.execute("begin immediate")
    raw.executemany("insert into theirs values (?)", [(os.urandom(100),) for _ in range(50)])
    raw.execute("commit")
"""


@contextmanager
def neighbour(path: Path) -> Generator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", WRITES_WITHOUT_PAUSE, str(path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "began\n"
        try:
            yield it
        finally:
            assert it.poll() is None, "it has not written all the time"
            it.kill()


def until_it_writes(eyes: sqlite3.Connection) -> None:
    """Wait until the neighbour has the lock again, whom our last write may have put to sleep."""

    def written() -> int:
        return int(eyes.execute("select max(rowid) from theirs").fetchone()[0] or 0)

    before = written()
    while written() < before + 500:
        time.sleep(0.001)


async def test_a_neighbour_that_never_pauses_does_not_keep_the_write_lock_from_us(tmp_path: Path):
    path = tmp_path / "jobs.db"
    store = open_backend(f"sqlite:///{path}")
    await store.open()
    waits: list[float] = []
    with neighbour(path), closing(sqlite3.connect(path)) as eyes:
        for _ in range(20):
            until_it_writes(eyes)
            began = time.monotonic()
            await enqueue(store, a_job())
            waits.append(time.monotonic() - began)
    await store.close()

    # With SQLite's own way of waiting one of these took 6.6 s.
    assert max(waits) < 3.0, waits


def test_a_lock_that_does_not_become_free_is_given_up_in_time_and_the_connection_serves_on(tmp_path: Path):
    location = SqliteLocation(path=tmp_path / "jobs.db", busy_timeout=0.2)
    connection, other = Connection(location, lambda: 0), Connection(location, lambda: 0)
    other.begin()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="is locked"):
        connection.begin()
    waited = time.monotonic() - began
    other.rollback()
    with connection.write() as tx:
        assert tx.pragma("busy_timeout") == 200, "a handler's own statements have no patience"
    connection.close()
    other.close()

    assert 0.2 <= waited < 2.0
