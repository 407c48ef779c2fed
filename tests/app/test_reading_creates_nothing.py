"""Calls that only read or change what is there never create a store: no file, no schema, no tables."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from tests.servers.postgres import own_schema, parts_of

from holdfast import App, SchemaMismatch, StoreUnavailable
from holdfast.cli.main import cli

READS = {
    "jobs.list": lambda app: app.jobs.list("ready"),
    "jobs.counts": lambda app: app.jobs.counts(),
    "jobs.retry": lambda app: app.jobs.retry("019a17f0-8c2e-7000-8000-000000000000"),
    "job.state": lambda app: app.job("019a17f0-8c2e-7000-8000-000000000000").state(),
    "queues.list": lambda app: app.queues.list(),
    "queues.pause": lambda app: app.queues.pause("default"),
    "consumers.list": lambda app: app.consumers.list(),
    "leases": lambda app: app.leases(),
    "workers": lambda app: app.workers(),
    "rescue": lambda app: app.rescue(),
    "categories": lambda app: app.categories(),
    "read": lambda app: app.read(log=True),
    "trim": lambda app: app.trim("orders", 60),
    "nodes": lambda app: app.nodes(),
    "wake": lambda app: app.wake(),
}


@pytest.fixture
def server() -> Iterator[str]:
    with own_schema() as url:
        yield url


@pytest.fixture
async def on_server(server: str) -> AsyncIterator[App]:
    app = App(server)
    yield app
    await app.close()


def schemas(url: str) -> list[tuple[str]]:
    server, name = parts_of(url)
    with psycopg.connect(server) as connection:
        return connection.execute("select nspname from pg_namespace where nspname = %s", (name,)).fetchall()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("name", READS)
async def test_on_a_server_it_says_what_is_missing(on_server: App, server: str, name: str):
    with pytest.raises(SchemaMismatch, match=f"the tables in the schema {parts_of(server)[1]} are missing: check the"):
        await READS[name](on_server)
    assert schemas(server) == []


@pytest.mark.parametrize("name", READS)
async def test_without_a_file_it_says_so(tmp_path: Path, name: str):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(StoreUnavailable, match=r"there is no database at .*jobs.db: the first enqueue creates it"):
        await READS[name](app)
    await app.close()
    assert names(tmp_path) == []


async def test_a_file_of_another_program_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table of_another_program (n integer)")
    before = path.read_bytes()
    app = App(f"sqlite:///{path}")
    with pytest.raises(SchemaMismatch, match="the tables are missing"):
        await app.jobs.list("ready")
    await app.close()
    assert path.read_bytes() == before
    assert names(tmp_path) == ["jobs.db"]


async def test_what_writes_creates_and_then_reading_works(on_server: App, tmp_path: Path):
    for app in (on_server, App(f"sqlite:///{tmp_path}/jobs.db")):

        @app.task
        async def greet() -> None: ...

        with pytest.raises((SchemaMismatch, StoreUnavailable)):
            await app.jobs.list("ready")
        job = await greet.enqueue()
        assert [view.id for view in (await app.jobs.list("ready")).jobs] == [job.id]
        await app.close()


async def test_a_store_in_memory_needs_no_enqueue_before_it_is_read():
    app = App("sqlite:///:memory:")
    assert (await app.jobs.list("ready")).jobs == []
    await app.close()


@pytest.mark.parametrize(
    "command", ["job list", "queue list", "lease list", "worker list", "consumer list", "node list", "schema check"]
)
def test_commands_that_read_name_the_schema_that_is_missing(server: str, command: str):
    result = CliRunner().invoke(cli, command.split(), env={"HOLDFAST_URL": server})
    assert result.exit_code != 0
    assert f"the tables in the schema {parts_of(server)[1]} are missing" in result.output
    assert schemas(server) == []
