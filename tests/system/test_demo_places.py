"""The demo keeps to a store of its own, wherever the URL leads, and prints no password."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from pathlib import Path

import psycopg
import pytest
from tests.system.demo_program import ON_EACH, SMALL, PostgresDemo, SqliteDemo, database, demo_on

from holdfast import App


@pytest.fixture
def in_file(tmp_path: Path) -> SqliteDemo:
    return SqliteDemo(tmp_path)


def test_without_a_url_the_demo_plays_in_a_file_of_the_current_directory(in_file):
    del in_file.environment["HOLDFAST_URL"]

    output = in_file.run(*SMALL, "--kill", "0", "--jobs", "50")

    assert f"Store: sqlite:///{in_file.directory}/holdfast-demo.db\n" in output
    assert [path.name for path in in_file.directory.iterdir() if path.suffix == ".db"] == ["holdfast-demo.db"]


def test_the_store_is_named_and_a_url_by_option_goes_before_the_environment(in_file):
    assert f"Store: {in_file.url} (from $HOLDFAST_URL)\n" in in_file.run(*SMALL, "--kill", "0", "--jobs", "20")
    in_file.run("clean", "--yes")

    other = f"sqlite:///{in_file.directory}/other.db"
    for words in (("produce", "--jobs", "20", "--url", other), ("--url", other, "verify"), ("verify", "--url", other)):
        in_file.run(*words, code=1 if "verify" in words else 0)
    assert not in_file.file.exists()


@pytest.mark.slow
def test_on_postgresql_the_demo_has_a_schema_of_its_own_and_prints_no_password(tmp_path):
    with database() as url:
        place, _, rest = url.partition("//")
        user, at, host = rest.rpartition("@")
        demo = PostgresDemo(tmp_path, f"{place}//{user.partition(':')[0]}:s3cret{at}{host}?schema=shop&install=never")

        output = demo.run(*SMALL, "--kill", "0", "--jobs", "50")

        assert "schema=shop_demo (from $HOLDFAST_URL)" in output
        assert "s3cret" not in output + demo.run("clean", "--yes")
        with psycopg.connect(url) as connection:
            names = connection.execute("select nspname from pg_namespace where nspname ~ 'shop|holdfast'").fetchall()
        assert names == []


def work_of_another(demo: SqliteDemo) -> None:
    async def enqueue() -> None:
        async with App(demo.url) as app:
            await app.task(queue="orders", name="charge")(lambda: None).enqueue()

    asyncio.run(enqueue())


@pytest.mark.parametrize(
    ("made_by", "words"),
    [
        (work_of_another, "it contains the queue orders"),
        (lambda demo: asyncio.run(App(demo.url).backend.schema.install()), "it was created for something else"),
        (lambda demo: demo.sql("create table customer (name text)"), "it contains other data"),
    ],
    ids=["jobs", "tables without jobs", "tables of another program"],
)
@pytest.mark.parametrize("command", [("--fresh",), ("produce",)], ids=["demo", "produce"])
def test_a_store_that_holds_anything_else_is_refused_and_left_as_it_is(in_file, made_by, words, command):
    made_by(in_file)
    before = in_file.sql("select name, sql from sqlite_schema order by name")

    output = in_file.run(*command, code=78)

    assert f"the demo would interfere with {in_file.url}: {words}" in output
    assert "--url sqlite:///holdfast-demo.db" in output
    assert in_file.sql("select name, sql from sqlite_schema order by name") == before
    if made_by is work_of_another:
        assert in_file.sql("select count(*) from holdfast_job") == [(1,)]


@pytest.mark.parametrize("store", ON_EACH)
def test_a_demo_whose_store_has_come_into_use_is_refused_and_only_its_own_is_cleaned(tmp_path, store):
    with demo_on(store, tmp_path) as finished:
        finished.run(*SMALL, "--kill", "0", "--jobs", "100")
        finished.sql("create table customer (name text)")
        finished.sql("insert into customer values ('ada')")

        assert "it contains the table customer" in finished.run(code=78)
        assert "tables were removed" in finished.run("clean", "--yes")

        assert finished.sql("select name from customer") == [("ada",)]
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable)):
            finished.effects()


@pytest.mark.slow
def test_a_role_that_may_not_make_a_schema_is_told_so_with_a_remedy(tmp_path):
    role = f"poor_{secrets.token_hex(4)}"
    with database() as url:
        place, _, rest = url.partition("//")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"create role {role} login password 'poor'".encode())
        demo = PostgresDemo(tmp_path, f"{place}//{role}:poor@{rest.rpartition('@')[2]}")

        output = demo.run(code=78)

        assert "cannot create its schema holdfast_demo" in output
        assert "Allow the role to create it, or use a file" in output
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop role {role}".encode())
