"""Nodes that are killed and frozen, and a broker that crashes: each event takes effect once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.servers.kafka import new_prefix
from tests.servers.postgres import parts_of
from tests.servers.postgres_schemas import clean_schema

from holdfast import App
from holdfast.testing.kafka_server import kafka_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STREAMS, EACH = 60, 50
WITHIN = 150.0
PROGRAM = dedent(
    """
    from holdfast import App, Event, EventContext

    app = App()

    @app.consumer("billing", category="orders", batch=20, poll_interval=0.2)
    async def billing(events: list[Event], ctx: EventContext) -> None:
        async with ctx.transaction() as connection:
            for event in events:
                values = (event.stream, event.payload)
                await connection.execute("insert into effect (stream, number) values (%s, %s)", values)
    """
)


class Nodes:
    """Worker processes over one PostgreSQL schema and one broker. On SQLite a frozen writer would stop all others."""

    def __init__(self, folder: Path, url: str, events: str) -> None:
        self.folder = folder
        self._server, self._schema = parts_of(url)
        self.app = App(url, events=events)
        self.environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_EVENTS_URL": events}
        self.processes: list[subprocess.Popen[bytes]] = []
        program = PROGRAM.replace("into effect", f"into {self._schema}.effect")
        (folder / "billing.py").write_text(program)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", "run", "billing:app", "--quiet"]
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment)
        self.processes.append(process)
        return process

    def prepare(self) -> None:
        self.app.sync.category("orders", partitions=4)
        self._run("create table {}.effect (place bigserial primary key, stream text, number int)")

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._server, autocommit=True) as connection:
            cursor = connection.execute(sql.SQL(statement).format(sql.Identifier(self._schema)))
            return cursor.fetchall() if cursor.description else []

    def append(self) -> None:
        for number in range(EACH):
            made = [{"stream": f"order-{n}", "name": "placed", "payload": number} for n in range(STREAMS)]
            self.app.sync.append_many("orders", made)

    def effects(self) -> list[tuple[Any, ...]]:
        return self._run("select stream, number from {}.effect order by place")

    def count(self) -> int:
        return int(self._run("select count(*) from {}.effect")[0][0])

    def until(self, is_true: Callable[[int], bool]) -> None:
        until = time.monotonic() + WITHIN
        while not is_true(self.count()):
            assert time.monotonic() < until, self.count()
            time.sleep(0.1)

    def check(self) -> None:
        self.until(lambda number: number >= STREAMS * EACH)
        by_stream = defaultdict(list)
        for stream, number in self.effects():
            by_stream[stream].append(number)
        assert len(by_stream) == STREAMS
        for stream, numbers in by_stream.items():
            assert numbers == list(range(EACH)), stream  # none lost, none doubled, in order

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.app.sync.close()


@contextmanager
def nodes_over(folder: Path, events: str) -> Iterator[Nodes]:
    with clean_schema() as url:
        nodes = Nodes(folder, url, events)
        try:
            nodes.prepare()
            yield nodes
        finally:
            nodes.end()


def test_killed_and_frozen_nodes_lose_and_double_nothing(tmp_path: Path):
    with nodes_over(tmp_path, new_prefix()) as nodes:
        first, second = nodes.start(), nodes.start()
        nodes.append()
        nodes.until(lambda number: number > 300)
        first.kill()
        first.wait()
        nodes.start()
        nodes.until(lambda number: number > 900)
        second.send_signal(signal.SIGSTOP)
        nodes.until(lambda number: number >= STREAMS * EACH)
        second.send_signal(signal.SIGCONT)
        time.sleep(2)  # what it does now must have no effect

        nodes.check()


def test_a_broker_that_crashes_delays_and_loses_nothing(tmp_path: Path):
    with kafka_server() as server, nodes_over(tmp_path, server.url) as nodes:
        nodes.append()
        nodes.start()
        nodes.until(lambda number: number > 300)
        server.kill()
        server.start()

        nodes.check()
        (view,) = nodes.app.sync.consumers.list()
        assert {share.generation for share in view.shares} == {1}  # the shares stayed where they were
