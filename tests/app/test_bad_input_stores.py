"""Stores that cannot be opened: the error says what is wrong with the place and what to do, and nothing is harmed."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.app.work import ask, change

from holdfast import App, ConfigError, HoldfastError, SchemaMismatch, StoreError, StoreUnavailable
from holdfast.backends.sqlite import schema

NOBODY = 65534


async def refused(url: str) -> HoldfastError:
    """Return the error with which an enqueue to the store behind a URL is refused."""
    app = App(url)

    @app.task
    async def noop() -> None: ...

    try:
        with pytest.raises(HoldfastError) as caught:
            await noop.enqueue()
    finally:
        await app.close()
    return caught.value


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("", "is empty"),
        ("jobs.db", "the URL must begin with one of"),
        ("/var/lib/jobs.db", "the URL must begin with one of"),
        ("mongodb://localhost/jobs", "no store is known for mongodb://"),
        ("postgresql+asyncpg://app@localhost/shop", "drop +asyncpg, so that it is postgresql://…"),
        ("postgres+psycopg2://app@localhost/shop", "drop +psycopg2, so that it is postgres://…"),
        ("sqlite+aiosqlite:///jobs.db", "drop +aiosqlite, so that it is sqlite://…"),
        ("mysql+pymysql://app@localhost/shop", "drop +pymysql"),
        ("mysql://app@localhost", "it names no database"),
        ("kafka://localhost", "keeps events, not jobs: name a SQL store, and Kafka next to it"),
        ("sqlite://jobs.db", "it must look like sqlite:///jobs.db"),
        ("sqlite://host/jobs.db", "it must look like sqlite:///jobs.db"),
        ("sqlite:///jobs.db#part", "it must look like sqlite:///jobs.db"),
        ("sqlite:///", "names no file"),
        ("sqlite:///?synchronous=normal", "names no file"),
        ("sqlite:///a%00b", "NUL character"),
        ("sqlite:///jobs.db?sync=full", "supported: synchronous=full|normal, busy_timeout"),
        ("sqlite:///jobs.db?synchronous=off", "supported: synchronous=full|normal"),
        ("sqlite:///jobs.db?busy_timeout=soon", "busy_timeout=<seconds>"),
        ("sqlite:///jobs.db?busy_timeout=-1", "busy_timeout=<seconds>"),
        ("http://[broken", "cannot be parsed"),
    ],
)
def test_a_url_that_leads_to_no_store_is_refused_with_the_remedy(monkeypatch, url, remedy):
    monkeypatch.setenv("HOLDFAST_URL", "sqlite://")  # what is given is taken, though it be empty

    with pytest.raises(ConfigError) as caught:
        App(url)

    assert remedy in str(caught.value)


def test_a_url_that_is_no_text_is_refused_with_an_example():
    with pytest.raises(ConfigError, match=r"for example 'sqlite:///holdfast\.db'"):
        App(Path("jobs.db"))  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["mongodb://user:hunter2@host/jobs", "mongodb://user:hunter2@[host/jobs"])
def test_a_refused_url_shows_no_password(url):
    with pytest.raises(ConfigError) as caught:
        App(url)

    assert "hunter2" not in str(caught.value)


def test_the_environment_names_the_store_and_a_bad_one_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", "nonsense")
    with pytest.raises(ConfigError, match="the URL must begin with"):
        App()

    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///named.db")
    assert str(tmp_path / "named.db") in repr(App())
    assert not (tmp_path / "named.db").exists()


async def test_a_missing_directory_is_named(tmp_path):
    error = await refused(f"sqlite:///{tmp_path}/missing/jobs.db")

    assert isinstance(error, StoreUnavailable)
    assert f"{tmp_path}/missing does not exist: create the directory" in str(error)
    assert not (tmp_path / "missing").exists()


async def test_a_directory_in_place_of_a_file_is_named(tmp_path):
    error = await refused(f"sqlite:///{tmp_path}")

    assert isinstance(error, StoreUnavailable)
    assert "name the database file, not a directory" in str(error)


async def test_a_device_in_place_of_a_file_is_named():
    error = await refused("sqlite:////dev/null")

    assert isinstance(error, StoreUnavailable)
    assert "is not a file: name the database file" in str(error)


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir or Madam, " * 500)
    before = letter.read_bytes()

    error = await refused(f"sqlite:///{letter}")

    assert isinstance(error, StoreError)
    assert "is not a SQLite database" in str(error)
    assert "name another file" in str(error)
    assert letter.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


async def test_a_damaged_database_is_told_as_such(tmp_path):
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}")
    async with app:
        pass
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)

    error = await refused(f"sqlite:///{path}")

    assert isinstance(error, StoreError)
    assert "restore a backup or name another file" in str(error)


async def test_a_database_of_somebody_else_gets_our_tables_beside_theirs(tmp_path):
    path = tmp_path / "shop.db"
    change(path, "create table customer (name text)")
    change(path, "insert into customer values ('Ada')")

    async with App(f"sqlite:///{path}"):
        pass

    assert ask(path, "select name from customer") == [("Ada",)]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as a user to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def folder_for_anyone() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


async def test_a_file_that_cannot_be_written_is_refused_with_the_remedy():
    with folder_for_anyone() as folder:
        path = folder / "jobs.db"
        app = App(f"sqlite:///{path}")
        async with app:
            pass
        path.chmod(0o444)
        with unprivileged():
            error = await refused(f"sqlite:///{path}")

        assert isinstance(error, StoreUnavailable)
        assert "check the path and its permissions" in str(error)


async def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy():
    with folder_for_anyone() as folder, unprivileged():
        error = await refused(f"sqlite:///{folder}/jobs.db")

        assert isinstance(error, StoreUnavailable)
        assert "jobs.db cannot be created: Permission denied" in str(error)


async def test_newer_tables_are_refused_with_the_remedy_and_left_as_they_are(tmp_path):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}"):
        pass
    change(path, "update holdfast_meta set schema_version = 999")

    error = await refused(f"sqlite:///{path}")

    assert isinstance(error, SchemaMismatch)
    assert "have version 999, newer than this Holdfast supports" in str(error)
    assert "upgrade the holdfast package" in str(error)
    assert ask(path, "select count(*) from holdfast_job") == [(0,)]


async def test_older_tables_are_refused_with_the_command_that_upgrades_them(tmp_path, monkeypatch):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}"):
        pass
    present = max(schema.MIGRATIONS)
    monkeypatch.setitem(schema.MIGRATIONS, present + 1, "")

    error = await refused(f"sqlite:///{path}")

    assert isinstance(error, SchemaMismatch)
    wanted = f"have version {present}, this Holdfast needs version {present + 1}: run `holdfast schema upgrade`"
    assert wanted in str(error)


async def test_a_file_that_another_holds_locked_is_told_as_such_and_opens_later(tmp_path):
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}"):
        pass
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    try:
        error = await refused(f"sqlite:///{path}?busy_timeout=0.1")
    finally:
        holder.close()

    assert isinstance(error, StoreUnavailable)
    assert "busy_timeout in the URL sets how long to wait" in str(error)
    async with App(f"sqlite:///{path}?busy_timeout=0.1") as app:
        app.task(_noop)
        assert (await app.enqueue("_noop")).created


async def _noop() -> None: ...


async def test_an_app_that_could_not_open_its_store_opens_it_once_it_is_there(tmp_path):
    app = App(f"sqlite:///{tmp_path}/later/jobs.db")
    app.task(_noop)
    with pytest.raises(StoreUnavailable):
        await app.enqueue("_noop")

    (tmp_path / "later").mkdir()

    assert (await app.enqueue("_noop")).created
    await app.close()


async def test_another_store_cannot_be_chosen_once_one_is_open(tmp_path):
    app = App("sqlite://")
    async with app:
        with pytest.raises(ConfigError, match=r"call app\.use\(…\) earlier, or app\.close\(\) first"):
            app.use(f"sqlite:///{tmp_path}/other.db")
    app.use(f"sqlite:///{tmp_path}/other.db")

    assert "other.db" in repr(app)
