"""A store that another program uses: a run refuses it, and changes nothing in it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers.missing import give_up
from tests.servers.postgres import NoServerError, drop_schema, new_schema_url, own_schema, parts_of
from tests.torture.test_target import prepared

from holdfast import App
from holdfast.model.allocation import NodeKey, Timing
from holdfast.store.stream_values import Member, NewNode
from holdfast.store.values import Retention, WorkerHeartbeat
from holdfast.torture.names import QUEUE
from holdfast.torture.streams.names import BATCH, MAIN, PARTITIONS
from holdfast.torture.target import target_of
from holdfast.torture.target.base import Foreign
from holdfast.torture.work.app import EVERYTHING, URL

ROOT = Path(__file__).parents[2]
LONG_AGO = 100 * 24 * 3600 * 1_000_000  # microseconds: longer than any retention by default
ENDED = ("completed", "failed", "cancelled")

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store where a run would go."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shared.db"
        return
    try:
        place = target_of(new_schema_url()).url
    except NoServerError as error:
        give_up("PostgreSQL", str(error))
    yield place
    drop_schema(place)


def query_of(url: str) -> tuple[Query, str, str]:
    """Return what runs a statement on a store, what stands before its tables, and what lists them."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")

        def on_sqlite(statement: str) -> list[tuple[Any, ...]]:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()

        return on_sqlite, "holdfast_", "select substr(name, 10) from sqlite_schema where name glob 'holdfast_*'"
    server, schema = parts_of(url)

    def on_postgres(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(server, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    return on_postgres, f'"{schema}".', f"select tablename from pg_tables where schemaname = '{schema}'"  # noqa: S608


def rows_of(url: str) -> dict[str, list[str]]:
    """Return every row of every table of a store, but the counters of its own."""
    query, at, names = query_of(url)
    tables = [name for (name,) in query(names + (" and type = 'table'" if at == "holdfast_" else ""))]
    return {name: sorted(map(str, query(f"select * from {at}{name}"))) for name in tables if name != "meta"}  # noqa: S608


async def left(url: str, queue: str, category: str, consumer: str, name: str) -> None:
    """Leave in a store whatever programs leave: jobs in several states, lines, counts, workers, events, nodes."""
    app = App(url, retention=EVERYTHING)

    @app.task(name=name, queue=queue, max_attempts=1)
    async def work(how: str) -> None:
        if how == "bad":
            raise ValueError(how)

    async with app:
        for how in ("good", "bad"):
            await work.enqueue(how)
        cancelled = await work.options(delay=3600).enqueue("late")
        await cancelled.cancel()
        await app.drain(queue)
        for _ in range(2):
            await work.options(order_key="a line").enqueue("good")
        await work.options(delay=3600).enqueue("late")
        await app.queues.pause(queue)
        await app.category(category, partitions=PARTITIONS[MAIN])
        await app.append(category, stream="s", name="happened")
        node = NodeKey(f"node of {consumer}", "1")
        await app.backend.streams.allocations.join(
            NewNode(node, "here", 1, (Member(consumer),), Timing.for_recovery(5))
        )
        await asyncio.to_thread(
            send_heartbeat, app, WorkerHeartbeat(f"worker of {queue}", "h", 1, (queue,), 1, timedelta(30), 0)
        )


def send_heartbeat(app: App, heartbeat: WorkerHeartbeat) -> None:
    extender = app.backend.extender()
    extender.heartbeat(heartbeat)
    extender.close()


def grown_old(url: str) -> None:
    """Let everything that has ended have ended long ago."""
    query, at, _ = query_of(url)
    for state in ENDED:
        query(f"update {at}{state} set finished_at = finished_at - {LONG_AGO}")  # noqa: S608


async def test_the_store_of_another_program_is_refused_and_stays_as_it_was(url):
    await left(url, "theirs", "orders", "biller", "bill")
    before = rows_of(url)
    target = target_of(url)

    for refused in (target.require_own, target.create, target.drop):
        with pytest.raises(Foreign, match="was not created by a torture run"):
            refused()

    assert rows_of(url) == before
    assert all(before[state] for state in (*ENDED, "scheduled", "ready", "blocked", "key_head", "attempt", "lane"))
    assert all(before[name] for name in ("worker", "node", "queue", "event"))


async def test_what_another_program_has_put_into_the_store_of_a_run_stays_as_it_was(url):
    target = target_of(url)
    await prepared(target)
    await left(url, QUEUE, MAIN, BATCH, "tortured")
    target.require_own()
    await left(url, "theirs", "orders", "biller", "bill")
    before = rows_of(url)

    with pytest.raises(Foreign, match="holds 7 jobs, tables or other things"):  # six jobs and a category
        target.create()

    assert rows_of(url) == before


PRUNING = """
import asyncio, sys
from holdfast.torture.programs.worker import with_known_tasks
from holdfast.torture.work.app import app

async def prune():
    for each in (app, with_known_tasks(knows_rare_task=True)):
        await each.opened()
        print(await each.backend.jobs.prune(each.retention, 1000))
        await each.close()

asyncio.run(prune())
"""


async def test_workers_of_a_run_prune_nothing_however_old(url):
    await left(url, "theirs", "orders", "biller", "bill")
    grown_old(url)
    before = rows_of(url)

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PRUNING],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), URL: url},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["0", "0"]
    assert {name: rows_of(url)[name] for name in (*ENDED, "job")} == {name: before[name] for name in (*ENDED, "job")}
    async with App(url) as app:
        assert await app.backend.jobs.prune(Retention(), 1000) == 3, "others would"


def torture(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "torture", "--seed", "1", "--jobs", "100", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(120)
async def test_the_command_refuses_the_store_of_another_program_and_changes_nothing(url, tmp_path):
    await left(url, "theirs", "orders", "biller", "bill")
    before = rows_of(url)

    refused = await asyncio.to_thread(torture, tmp_path, "--url", url)

    assert refused.returncode == 78
    assert "was not created by a torture run" in refused.stderr
    assert rows_of(url) == before


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_whole_run_next_to_the_store_of_another_program_changes_nothing_there(tmp_path):
    with own_schema() as url:  # the run goes to a schema of its own in the same database
        await left(url, "theirs", "orders", "biller", "bill")
        before = rows_of(url)

        done = await asyncio.to_thread(torture, tmp_path, "--url", url)

        assert done.returncode in {0, 4}, done.stdout + done.stderr
        assert "othing was lost and nothing was doubled" in done.stdout, "whether or not all faults found their time"
        assert "is gone" in done.stdout
        assert rows_of(url) == before
        assert not target_of(url).exists()
