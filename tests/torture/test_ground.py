"""What a run removes of a store, and what it never does."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url, parts_of

from holdfast import App
from holdfast.torture.names import QUEUE
from holdfast.torture.recorder import RUN
from holdfast.torture.streams.names import MAIN, PARTITIONS
from holdfast.torture.streams.target import stream_ground_of
from holdfast.torture.target import Target, ground_of
from holdfast.torture.target.base import Leftovers
from holdfast.torture.target.sqlite import SqliteGround


async def filled(url: str, *, others: bool) -> None:
    """Leave in a store what a run leaves, and what is of others."""
    app = App(url)

    @app.task(queue=QUEUE)
    async def ours() -> None: ...

    @app.task(name="theirs")
    async def theirs() -> None: ...

    async with app:
        await ours.enqueue()
        for _ in range(3):
            await ours.options(order_key="a line").enqueue()
        await ours.options(delay=60).enqueue()
        await app.drain(QUEUE)
        for name, partitions in PARTITIONS.items():
            await app.category(name, partitions=partitions)
        await app.append(MAIN, stream="s", name="happened")
        if others:
            await theirs.options(order_key="a line").enqueue()
            await theirs.options(order_key="a line").enqueue()
            await app.append("orders", stream="order-1", name="placed")


async def test_a_file_that_no_run_has_made_is_never_removed_even_if_it_holds_no_job(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/theirs.db"
    async with App(url):
        pass
    ground = ground_of(url)

    ground.wipe()
    ground.prepare()
    assert "nothing else" in ground.wipe()

    assert (tmp_path / "theirs.db").exists()
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        tables = {row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")}
    connection.close()
    assert "holdfast_job" in tables
    assert not any(name.startswith("holdfast_torture") for name in tables)


@pytest.mark.parametrize("of", [ground_of, stream_ground_of])
async def test_a_file_that_a_run_has_made_is_removed_by_it_and_by_the_next_one(of, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/run.db"
    ground: SqliteGround = of(url)
    ground.wipe()
    async with App(url):
        pass
    ground.prepare()

    of(url).wipe()

    assert not (tmp_path / "run.db").exists()


@pytest.mark.parametrize("of", [ground_of, stream_ground_of])
async def test_runs_on_a_shared_file_begin_without_the_jobs_and_events_of_earlier_ones(of, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/shared.db"
    await filled(url, others=True)
    ground: Target = of(url)

    await assert_only_the_others_are_left(url, ground)

    assert (tmp_path / "shared.db").exists()


@pytest.mark.parametrize("of", [ground_of, stream_ground_of])
async def test_runs_on_a_shared_schema_begin_without_the_jobs_and_events_of_earlier_ones(of):
    try:
        plain = new_schema_url()
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    ground: Target = of(plain)
    try:
        await filled(ground.url, others=True)
        await assert_only_the_others_are_left(ground.url, ground)
    finally:
        drop_schema(ground.url)


async def test_the_indexes_of_a_schema_are_compared_with_their_tables():
    try:
        ground = ground_of(new_schema_url())
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    assert ground.versions()["indexes"] == "not checked"
    try:
        await filled(ground.url, others=False)
        assert ground.leftovers().integrity == ""
        assert re.fullmatch(r"\d\d+ checked", ground.versions()["indexes"])
        with psycopg.connect(parts_of(ground.url)[0]) as connection:
            assert connection.execute("select 1 from pg_extension where extname = 'amcheck'").fetchone() is None
    finally:
        drop_schema(ground.url)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print(flush=True)
sys.stdin.read()
"""


async def test_a_process_of_the_run_that_still_writes_to_the_file_is_left_over(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("holdfast.torture.target.sqlite._BUSY", 0.05)
    url = f"sqlite:///{tmp_path}/run.db"
    async with App(url):
        pass
    ground = ground_of(url)
    assert ground.leftovers() == Leftovers()
    with held(tmp_path / "run.db"):
        assert ground.leftovers() == Leftovers(transactions=1, connections=1)


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


async def assert_only_the_others_are_left(url: str, ground: Target) -> None:
    foreign = ground.foreign()
    ground.wipe()
    ground.prepare()

    assert ground.foreign() == foreign > 0
    jobs, streams = ground_of(url), stream_ground_of(url)
    jobs.wipe()
    assert not any(jobs.counts().values()), "jobs of others are not counted"
    streams.prepare()
    assert list(jobs.rows()) == []
    assert list(streams.dumped()) == []
    app = App(url)

    @app.task(name="theirs")
    async def theirs() -> None: ...

    async with app:
        assert (await app.drain("default")).completed == 2
        assert [event.name for event in (await app.read("orders", stream="order-1")).events] == ["placed"]
        await app.category(MAIN, partitions=PARTITIONS[MAIN])
        await app.append(MAIN, stream="s", name="happened")
