"""Consumers with `executor="process"`: real child processes, really killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.system.stores import Store

from holdfast import App, ConfigError, Event
from holdfast.streams.node import Node

NAMES = ["billing-async", "billing-plain"]
SOON = 40.0


@pytest.fixture
def app(store: Store, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("PROCESS_CONSUMERS_URL", store.url)
    from tests.system.apps import process_consumers_app as module

    app = App(store.url)
    for name in (*NAMES, "billing-skip", "billing-batch"):
        consumer = module.app.subscribed.get(name)
        app.subscribed.add(consumer)
    return app


@contextlib.asynccontextmanager
async def consuming(app: App, name: str) -> AsyncIterator[Node]:
    """Run a node with one consumer."""
    backend = await app.opened()
    node = app.node()
    node._consumers = {name: app.subscribed.get(name)}
    running = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        node.stop()
        await running
        await backend.close()


async def append(app: App, *payloads: dict[str, Any]) -> None:
    await app.category("orders", partitions=1)
    await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": payload} for payload in payloads])


async def drained(app: App, name: str) -> None:
    async with asyncio.timeout(SOON):
        while True:
            views = [view for view in await app.consumers.list() if view.name == name]
            if views and views[0].shares and views[0].lag == 0:
                return
            await asyncio.sleep(0.05)


def execute(store: Store, statement: str) -> list[tuple[Any, ...]]:
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///").partition("?")[0]
        with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(store.url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def effects(store: Store) -> list[tuple[Any, ...]]:
    return execute(store, "select event_id, pid from process_effect")


@pytest.fixture
def table(store: Store) -> None:
    execute(store, "create table process_effect (event_id text, pid bigint)")


@pytest.mark.parametrize("name", NAMES)
async def test_a_handler_runs_in_a_child_process_and_effect_and_position_commit_together(app, store, table, name):
    await append(app, {}, {}, {})
    async with consuming(app, name):
        await drained(app, name)
    written = effects(store)
    assert len({event for event, _ in written}) == len(written) == 3
    (pid,) = {pid for _, pid in written}
    assert pid != os.getpid()


async def test_a_batch_is_handled_in_a_child_process_in_one_transaction(app, store, table):
    await append(app, {}, {}, {})
    async with consuming(app, "billing-batch"):
        await drained(app, "billing-batch")
    assert len(effects(store)) == 3


@pytest.mark.parametrize("name", NAMES)
async def test_a_child_that_is_killed_is_a_failed_attempt_and_the_next_one_writes_the_effect_once(
    app, store, table, name, tmp_path: Path, caplog
):
    mark = tmp_path / "mark"
    await append(app, {}, {"do": "die", "mark": str(mark), "once": True}, {})
    async with consuming(app, name):
        await drained(app, name)
    assert len(mark.read_text().splitlines()) == 2
    written = [event for event, _ in effects(store)]
    assert len(set(written)) == len(written) == 3
    assert "the child process was killed by signal 9 (SIGKILL)" in caplog.text


@pytest.mark.parametrize("point", ["after_commit=kill", "before_commit=kill@2"])
async def test_a_child_that_dies_around_its_commit_neither_doubles_nor_loses_the_effect(
    app, store, table, monkeypatch, point
):
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", point)  # read by the children when they start
    await append(app, {}, {}, {})
    async with consuming(app, "billing-async"):
        await drained(app, "billing-async")
    written = [event for event, _ in effects(store)]
    assert len(set(written)) == len(written) == 3


@pytest.mark.parametrize("do", ["die", "raise", pytest.param("sleep", marks=pytest.mark.slow)])
async def test_an_event_that_always_kills_its_child_or_fails_is_skipped_after_its_attempts(
    app, tmp_path: Path, caplog, do
):
    mark = tmp_path / "mark"
    await append(app, {"do": do, "mark": str(mark)}, {})
    async with consuming(app, "billing-skip"):
        await drained(app, "billing-skip")
    assert len(mark.read_text().splitlines()) == 3
    expected = {
        "die": "WorkerLost",
        "raise": "ValueError: as asked",
        "sleep": "TimeLimit: the attempt was ended",
    }[do]
    assert "is skipped after 3 attempts" in caplog.text
    assert expected in caplog.text


def test_a_handler_without_a_name_in_a_module_is_refused():
    app = App("sqlite://")
    with pytest.raises(ConfigError, match="has no name in a module"):

        @app.consumer("billing", category="orders", executor="process")
        def billing(event: Event) -> None: ...
