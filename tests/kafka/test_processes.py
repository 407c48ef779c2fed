"""Nodes that are killed and frozen, and a broker that crashes: each event takes effect once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql
from tests.servers.kafka import new_prefix
from tests.servers.postgres import parts_of
from tests.servers.postgres_schemas import clean_schema

from holdfast import App
from holdfast.testing.kafka_server import kafka_server
from holdfast.torture.proxy import Proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STREAMS, EACH = 60, 50
WITHIN = 150.0
RECOVERY = 15.0  # seconds, as the default timing promises
PROGRAM = dedent(
    """
    import os
    import signal
    from pathlib import Path

    from holdfast import App, Event, EventContext

    app = App()

    @app.consumer("billing", category="orders", batch=int(os.environ["BATCH"]), poll_interval=0.2)
    async def billing(events: list[Event], ctx: EventContext) -> None:
        async with ctx.transaction() as connection, connection.cursor() as cursor:
            await cursor.executemany("insert into effect (stream, number) values (%s, %s)", rows(events))


    def rows(events):
        freeze = Path("freeze-" + os.environ["NODE"])
        for event in events:
            yield event.stream, event.payload
            if freeze.exists():  # with rows sent and others not, in the pipeline of one executemany
                freeze.unlink()
                os.kill(os.getpid(), signal.SIGSTOP)
    """
)


class Nodes:
    """Worker processes over one PostgreSQL schema and one broker. On SQLite a frozen writer would stop all others."""

    def __init__(self, folder: Path, url: str, events: str, *, each: int = EACH, batch: int = 20) -> None:
        """`each` are the events of a stream, of which a node handles `batch` at a time."""
        self.folder = folder
        self._each = each
        self._events = events
        self._server, self._schema = parts_of(url)
        self.app = App(url, events=events)
        self.environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_EVENTS_URL": events, "BATCH": str(batch)}
        self.processes: list[subprocess.Popen[bytes]] = []
        program = PROGRAM.replace("into effect", f"into {self._schema}.effect")
        (folder / "billing.py").write_text(program)

    def start(self, name: str = "one") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", "run", "billing:app", "--quiet", "--node-id", name]
        process = subprocess.Popen(command, cwd=self.folder, env={**self.environment, "NODE": name})
        self.processes.append(process)
        return process

    def prepare(self) -> None:
        self.app.sync.category("orders", partitions=4)
        self._run("create table {}.effect (place bigserial primary key, stream text, number int)")

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._server, autocommit=True) as connection:
            cursor = connection.execute(sql.SQL(statement).format(sql.Identifier(self._schema)))
            return cursor.fetchall() if cursor.description else []

    @property
    def all(self) -> int:
        return STREAMS * self._each

    def append(self, begin: int = 0, end: int | None = None) -> None:
        for number in range(begin, self._each if end is None else end):
            made = [{"stream": f"order-{n}", "name": "placed", "payload": number} for n in range(STREAMS)]
            self.app.sync.append_many("orders", made)

    def produce(self) -> None:
        """Append as another program does, in records so large that a client holds a few thousand of a partition."""
        place = urlsplit(self._events)
        producer = Producer({"bootstrap.servers": place.netloc, "partitioner": "murmur2"})
        topic = place.path.strip("/") + "orders"
        for number in range(self._each):
            for stream in range(STREAMS):
                record = (topic, str(number), f"order-{stream}")
                producer.produce(*record, headers=[("padding", b"x" * 1000)])
            producer.flush(60)
        assert len(producer) == 0

    def effects(self) -> list[tuple[Any, ...]]:
        return self._run("select stream, number from {}.effect order by place")

    def count(self) -> int:
        return int(self._run("select count(*) from {}.effect")[0][0])

    def freeze_inside_executemany(self, name: str, process: subprocess.Popen[bytes]) -> None:
        (self.folder / f"freeze-{name}").touch()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def shares_of(self, name: str) -> int:
        (view,) = self.app.sync.consumers.list()
        return sum(share.owner == name for share in view.shares)

    def until(self, is_true: Callable[[int], bool]) -> None:
        until = time.monotonic() + WITHIN
        while not is_true(self.count()):
            assert time.monotonic() < until, self.count()
            time.sleep(0.1)

    def until_still(self) -> int:
        """Wait until no effect has come for a while; return how many there are."""
        counts = [-1, self.count()]
        while counts[-1] != counts[-2]:
            time.sleep(2)
            counts.append(self.count())
        return counts[-1]

    def check(self) -> None:
        self.until(lambda number: number >= self.all)
        by_stream = defaultdict(list)
        for stream, number in self.effects():
            by_stream[stream].append(number)
        assert len(by_stream) == STREAMS
        for stream, numbers in by_stream.items():
            assert numbers == list(range(self._each)), stream  # none lost, none doubled, in order

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.app.sync.close()


@contextmanager
def nodes_over(folder: Path, events: str, **settings: int) -> Iterator[Nodes]:
    with clean_schema() as url:
        nodes = Nodes(folder, url, events, **settings)
        try:
            nodes.prepare()
            yield nodes
        finally:
            nodes.end()


def test_killed_and_frozen_nodes_lose_and_double_nothing(tmp_path: Path):
    with nodes_over(tmp_path, new_prefix(), each=100) as nodes:
        first, second = nodes.start("first"), nodes.start("second")
        nodes.append(0, 50)
        nodes.until(lambda number: number > 300 and nodes.shares_of("first") == nodes.shares_of("second") == 2)
        first.kill()
        first.wait()
        killed = time.monotonic()
        nodes.until(lambda _: nodes.shares_of("first") == 0)
        assert time.monotonic() - killed <= RECOVERY
        nodes.start("third")
        nodes.append(50)
        nodes.freeze_inside_executemany("second", second)
        nodes.until(lambda number: number >= nodes.all)
        second.send_signal(signal.SIGCONT)
        time.sleep(2)  # what it does now must have no effect

        nodes.check()


def test_a_broker_that_crashes_delays_and_loses_nothing(tmp_path: Path):
    with kafka_server() as server, nodes_over(tmp_path, server.url, each=1334, batch=500) as nodes:
        nodes.produce()
        nodes.start()
        nodes.until(lambda number: number > 300)
        server.kill()
        handled = nodes.until_still()
        assert handled < nodes.all  # so what follows is read from the broker that has started again
        server.start()

        nodes.check()
        (view,) = nodes.app.sync.consumers.list()
        assert {share.generation for share in view.shares} == {1}  # the shares stayed where they were


def test_nodes_that_lose_the_store_but_not_the_broker_go_on_where_they_were(tmp_path: Path):
    with (
        nodes_over(tmp_path, new_prefix(), each=200) as nodes,
        closing(Proxy(nodes.environment["HOLDFAST_URL"])) as way,
    ):
        parts = urlsplit(nodes.environment["HOLDFAST_URL"])._replace(netloc=urlsplit(way.url).netloc)
        nodes.environment["HOLDFAST_URL"] = urlunsplit(parts)
        nodes.append()
        nodes.start("one")
        nodes.start("two")
        nodes.until(lambda number: number > 300)
        way.refuse()
        way.cut()
        handled = nodes.until_still()
        assert handled < nodes.all
        way.heal()

        nodes.check()
