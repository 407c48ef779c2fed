"""A run creates its target and drops it; what it did not create stays as it is."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.servers.postgres import drop_schema, own_schema, parts_of

from holdfast import App, ConfigError
from holdfast.torture.recorder import RUN
from holdfast.torture.target import Target, target_of
from holdfast.torture.target.base import NOTHING, Foreign, Leftovers


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A target that does not exist yet."""
    if request.param == "sqlite":
        yield target_of(f"sqlite:///{tmp_path}/run.db")
        return
    with own_schema() as url:
        target = target_of(url)  # another schema than that of the URL
        try:
            yield target
        finally:
            drop_schema(target.url)


async def prepared(target: Target) -> None:
    """Create a target as a run does before its programs start."""
    target.create()
    async with App(target.url):
        """Opening installs Holdfast's tables."""
    target.prepare()


async def test_what_a_run_has_created_is_dropped_by_it(target: Target):
    await prepared(target)
    target.require_own()

    assert "is gone" in target.drop()

    assert not target.exists()
    assert target.drop() == NOTHING


async def test_what_an_earlier_run_has_left_is_dropped_by_the_next_one_before_it_begins(target: Target):
    await prepared(target)
    app = App(target.url)

    @app.task(queue="holdfast-torture")
    async def ours() -> None: ...

    async with app:
        await ours.enqueue()
    assert target.jobs.counts()["ready"] == 1
    again = target_of(target.url)

    await prepared(again)

    assert not any(again.jobs.counts().values())


async def test_a_run_that_was_killed_before_its_tables_were_installed_leaves_nothing_in_the_way(target: Target):
    target.create()

    await prepared(target_of(target.url))


async def test_a_run_that_was_killed_before_its_tables_were_listed_is_never_dropped(target: Target):
    target.create()
    async with App(target.url):
        pass

    with pytest.raises(Foreign, match="not of a torture run"):
        target_of(target.url).create()

    assert target.exists()


async def test_a_store_without_the_marker_of_a_run_is_refused_even_if_it_holds_no_job(target: Target):
    async with App(target.url):
        pass

    for refused in (target.require_own, target.create, target.drop):
        with pytest.raises(Foreign, match="was not created by a torture run"):
            refused()

    async with App(target.url) as app:
        await app.backend.schema.check()


async def test_jobs_of_another_program_in_the_store_of_a_run_are_never_dropped(target: Target):
    await prepared(target)
    app = App(target.url)

    @app.task
    async def theirs() -> None: ...

    async with app:
        await theirs.enqueue()

        with pytest.raises(Foreign, match="holds 1 jobs, tables or other things"):
            target.drop()

        assert (await app.drain("default")).completed == 1


async def test_events_of_another_program_in_the_store_of_a_run_are_never_dropped(target: Target):
    await prepared(target)
    async with App(target.url) as app:
        await app.append("orders", stream="order-1", name="placed")

        with pytest.raises(Foreign, match="holds 1 jobs, tables or other things"):
            target.create()

        assert [event.name for event in (await app.read("orders", stream="order-1")).events] == ["placed"]


@pytest.mark.parametrize(
    "what", ["table invoice (number)", "view overview as select 1", "index i on holdfast_job (seq)"]
)
async def test_whatever_is_put_into_the_file_of_a_run_is_never_removed(what: str, tmp_path: Path):
    target = target_of(f"sqlite:///{tmp_path}/run.db")
    await prepared(target)
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        connection.execute(f"create {what}")

    with pytest.raises(Foreign, match="holds 1 jobs, tables or other things"):
        target.drop()

    assert target.exists()


def test_a_file_that_is_empty_or_no_database_is_refused_and_stays(tmp_path: Path):
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at as one" * 100)

    with pytest.raises(Foreign, match="was not created by a torture run"):
        target_of(f"sqlite:///{tmp_path}/empty.db").create()
    with pytest.raises(ConfigError, match="not a SQLite database"):
        target_of(f"sqlite:///{tmp_path}/text.db").create()

    assert {file.name for file in tmp_path.iterdir()} == {"empty.db", "text.db"}


async def test_the_indexes_of_a_schema_are_compared_with_their_tables():
    with own_schema() as url:
        target = target_of(url)
        assert target.versions()["indexes"] == "not checked"
        try:
            await prepared(target)
            assert target.leftovers().integrity == ""
            assert re.fullmatch(r"\d\d+ checked", target.versions()["indexes"])
            with psycopg.connect(parts_of(target.url)[0]) as connection:
                assert connection.execute("select 1 from pg_extension where extname = 'amcheck'").fetchone() is None
        finally:
            drop_schema(target.url)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print(flush=True)
sys.stdin.read()
"""


async def test_a_process_of_the_run_that_still_writes_to_the_file_is_left_over(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("holdfast.torture.target.sqlite._BUSY", 0.05)
    target = target_of(f"sqlite:///{tmp_path}/run.db")
    await prepared(target)
    assert target.leftovers() == Leftovers()
    with held(tmp_path / "run.db"):
        assert target.leftovers() == Leftovers(transactions=1, connections=1)


@contextmanager
def held(path: Path) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, RUN: "r"},
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        assert holder.stdin is not None
        holder.stdin.close()
