"""The database file: who may read it, what a link can do, and the settings of every connection to it."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.app.work import connected

from holdfast import App, StoreUnavailable
from holdfast.backends.sqlite.backend import host_clock
from holdfast.backends.sqlite.connection import Connection
from holdfast.backends.sqlite.location import SqliteLocation


async def _noop() -> None: ...


@pytest.fixture
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


async def test_the_file_and_its_log_are_readable_by_their_owner_alone(tmp_path, generous_umask):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}") as app:
        await app.task(_noop).enqueue()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


async def test_the_mode_of_a_file_that_is_there_is_left_to_its_owner(tmp_path):
    path = tmp_path / "jobs.db"
    path.touch(0o640)
    path.chmod(0o640)
    async with App(f"sqlite:///{path}"):
        pass

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_creation_follows_no_link(tmp_path):
    target = tmp_path / "elsewhere" / "victim"
    target.parent.mkdir()
    (tmp_path / "jobs.db").symlink_to(target)

    with pytest.raises(StoreUnavailable, match="is a dangling link: remove it"):
        async with App(f"sqlite:///{tmp_path}/jobs.db"):
            pass

    assert not target.exists()


@pytest.mark.parametrize(("query", "synchronous"), [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)])
def test_every_connection_has_the_settings_that_the_promises_rest_on(tmp_path, query, synchronous):
    location = SqliteLocation.parse(f"sqlite:///{tmp_path}/jobs.db{query}")
    connection = Connection(location, host_clock)
    try:
        settings = {
            name: connection.raw.execute(f"pragma {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "trusted_schema", "mmap_size")
        }
        assert settings == {
            "journal_mode": "wal",
            "synchronous": synchronous,
            "trusted_schema": 0,
            "mmap_size": 0,
        }
        assert connection.raw.isolation_level is None
    finally:
        connection.close()


def test_one_connection_of_a_process_moves_the_log_into_the_database(tmp_path):
    location = SqliteLocation.parse(f"sqlite:///{tmp_path}/jobs.db")
    pages = []
    for checkpoints in (True, False):
        connection = Connection(location, host_clock, checkpoints=checkpoints)
        pages.append(connection.raw.execute("pragma wal_autocheckpoint").fetchone()[0])
        connection.close()

    assert pages == [1000, 0]


def test_no_statement_can_load_an_extension(tmp_path):
    connection = Connection(SqliteLocation.parse(f"sqlite:///{tmp_path}/jobs.db"), host_clock)
    try:
        with pytest.raises(sqlite3.OperationalError, match="not authorized"):
            connection.raw.execute("select load_extension('libm.so.6')")
    finally:
        connection.close()


async def test_functions_hidden_in_the_schema_of_a_foreign_file_are_not_run(tmp_path):
    """With a trusted schema, a view planted in the file could call what the connection can call."""
    connection = Connection(SqliteLocation.parse(f"sqlite:///{tmp_path}/jobs.db"), host_clock)
    calls: list[int] = []

    def effect() -> int:
        calls.append(1)
        return 1

    try:
        connection.raw.create_function("effect", 0, effect)
        connection.raw.execute("create view planted as select effect() as x")
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of effect"):
            connection.raw.execute("select x from planted").fetchall()
    finally:
        connection.close()
    assert calls == []


FORKING = """
    import asyncio, os, sys
    from holdfast import App

    app = App(sys.argv[1])

    @app.task
    async def noop(n: int) -> None: ...

    for n in range(5):
        noop.sync.enqueue(n=n)
    parents = app.backend._parts.here.writer.connection
    child = os.fork()
    if child == 0:
        from holdfast.errors import StoreError
        try:
            parents.begin()
        except StoreError as error:
            assert "cannot be used here" in str(error), error
        else:
            os._exit(2)
        for n in range(5, 10):
            noop.sync.enqueue(n=n)
        app.sync.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    for n in range(10, 15):
        noop.sync.enqueue(n=n)
    print(len(app.jobs.sync.list("ready").jobs))
    app.sync.close()
"""


def test_a_forked_child_refuses_its_parents_connection_and_opens_its_own(tmp_path):
    path = tmp_path / "jobs.db"
    program = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKING), f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (program.returncode, program.stdout.strip()) == (0, "15"), program.stderr
    with connected(path) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


async def test_a_reader_that_writes_never_fails_for_a_snapshot_that_went_stale(tmp_path):
    """Read first, then write, while others write in between: with `begin deferred` SQLite refuses at once."""
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}"):
        pass
    with connected(path) as first, connected(path) as second:
        first.execute("begin deferred")
        first.execute("select count(*) from holdfast_queue").fetchall()
        second.execute("insert into holdfast_queue (queue) values ('x')")
        with pytest.raises(sqlite3.OperationalError) as caught:
            first.execute("insert into holdfast_queue (queue) values ('y')")
        assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"

    location = SqliteLocation.parse(f"sqlite:///{path}?busy_timeout=0.05")
    ours, theirs = Connection(location, host_clock), Connection(location, host_clock)
    try:
        with ours.write() as tx:
            assert tx.value("known_seq", {"id": "x"}) is None
            with pytest.raises(StoreUnavailable), theirs.write():
                raise AssertionError("two writers at once")
            tx.run("add_queue", {"queue": "z"})
        with theirs.write() as tx:
            tx.run("add_queue", {"queue": "w"})
    finally:
        ours.close()
        theirs.close()


def test_every_transaction_that_writes_begins_as_a_writer():
    source = Path(sys.modules[Connection.__module__].__file__ or "").read_text(encoding="utf-8")

    assert source.count('"begin deferred"') == 1  # of `read`
    assert source.count('"begin immediate"') == 1  # of `begin`


async def test_an_idle_store_holds_no_snapshot_open_so_the_log_can_be_emptied(tmp_path):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}") as app:
        job = await app.task(_noop).enqueue()
        await app.jobs.list("ready", limit=1)
        await job.details()
        await app.queues.list()
        with connected(path) as connection:
            busy, _, _ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        assert busy == 0
        assert (tmp_path / "jobs.db-wal").stat().st_size == 0
