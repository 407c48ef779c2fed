"""Nodes as real processes, and what they consume."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from tests.system.harness import SOON, Program, eventually
from tests.system.stores import Store
from tests.system.stream_verdict import Call, Effect, assert_once_in_order, read_calls

from holdfast import App
from holdfast.model.allocation import ShareState
from holdfast.store.stream_values import ConsumerView, Transition

PARTITIONS = 8
CREATE = (
    "create table stream_effect "
    "(partition_id bigint, position_id bigint, stream text, version bigint, node text, fence bigint)"
)


class Cluster:
    """A store with one category, and nodes that share its consumer's work; `app` is a way of our own to the store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.app = App(store.url)
        self.nodes: dict[str, Program] = {}
        self._former: list[Program] = []
        self._record = folder / "record.jsonl"
        self._record.touch()
        self.appended = 0
        self.app.sync.category("orders", partitions=PARTITIONS)
        self.execute(CREATE)

    # --- the store ----------------------------------------------------------------------------------------------------

    def execute(self, statement: str) -> list[Any]:
        """Run a statement on a connection of our own, past every proxy."""
        if self.store.url.startswith("sqlite"):
            path = self.store.url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()
        url = self.store.url.partition("?")[0]
        with psycopg.connect(url, autocommit=True, application_name="test") as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def append(self, count: int = 1, *, streams: int = 24, stream: str | None = None, **payload: object) -> None:
        """Append events, spread over streams, or all to one."""
        self.app.sync.append_many(
            "orders",
            [
                {"stream": stream or f"order-{number % streams}", "name": "changed", "payload": payload}
                for number in range(count)
            ],
        )
        self.appended += count

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start(self, name: str, *, recovery: float | str = 3.0, url: str | None = None, **environment: str) -> Program:
        """Start a node; one of this name that has ended is replaced."""
        if name in self.nodes:
            self._former.append(self.nodes[name])
        node = Program(
            "tests.system.apps.stream_app",
            environment={
                "STREAM_URL": url or self.store.url,
                "STREAM_NODE": name,
                "STREAM_RECORD": str(self._record),
                "STREAM_RECOVERY": str(recovery),
                **environment,
            },
        )
        self.nodes[name] = node
        return node

    def started(self, *names: str, **settings: Any) -> list[Program]:
        """Start nodes and wait until the partitions are shared among all that live."""
        nodes = [self.start(name, **settings) for name in names]
        self.settled(*self.nodes)
        return nodes

    def handler_of(self, stream: str, *, beside: str | None = None, within: float = SOON) -> str:
        """Wait until a node handles an event of this stream, and return its name; not that of the one named."""

        def look() -> str | None:
            calls = [call for call in self.calls() if call.stream == stream and call.ended is None]
            return next((call.node for call in calls[::-1] if call.node != beside), None)

        return eventually(look, f"some node handles an event of {stream}", within=within)

    def consumer(self) -> ConsumerView:
        return self.app.portal.call(self.app.consumers.show("billing"))

    def owners(self) -> dict[int, str | None]:
        return {share.share.partition_id: share.owner for share in self.consumer().shares}

    def settled(self, *names: str, within: float = SOON) -> None:
        """Wait until the partitions are shared evenly by the nodes named, and none is about to move."""

        def look() -> bool:
            shares = [share for view in self.app.consumers.sync.list() for share in view.shares]
            counts = Counter(share.owner for share in shares)
            granted = all(share.state is ShareState.GRANTED for share in shares)
            return bool(shares) and granted and counts.keys() == set(names) and _is_even(counts)

        eventually(look, f"the partitions are shared by {names}", within=within)

    def taken_over_by(self, *names: str, within: float = SOON) -> None:
        """Wait until every partition belongs to one of the nodes named."""
        eventually(lambda: set(self.owners().values()) <= set(names), f"{names} have all partitions", within=within)

    def leader(self) -> tuple[str, int]:
        """Return who leads, and the epoch."""
        view = self.app.sync.leader()
        assert view is not None
        return view.leadership.node.node_id, view.leadership.epoch

    def transitions(self) -> list[Transition]:
        """Return the steps of all shares, oldest first."""
        allocations = self.app.backend.streams.allocations
        return self.app.portal.call(allocations.transitions(limit=1000))[::-1]

    def grants(self) -> int:
        """How often a share was given to a node until now."""
        return sum(step.new_state is ShareState.GRANTED for step in self.transitions())

    # --- what was done ------------------------------------------------------------------------------------------------

    def drained(self, *, within: float = SOON) -> None:
        """Wait until every event is done."""
        eventually(self.is_drained, "every event is done", within=within)

    def is_drained(self) -> bool:
        view = self.consumer()
        return bool(view.shares) and view.lag == 0

    def effects(self) -> list[Effect]:
        return [Effect(*row) for row in self.execute("select * from stream_effect")]

    def calls(self) -> list[Call]:
        return read_calls(self._record)

    def assert_once_in_order(self, *, overlap_allowed: bool = False) -> None:
        """Every event that was appended has one effect, in order; nobody worked beside another."""
        heads = self.app.sync.categories()[0].heads
        assert sum(heads) == self.appended
        assert_once_in_order(self.effects(), heads, self.transitions(), calls=[] if overlap_allowed else self.calls())

    def close(self) -> None:
        for node in (*self.nodes.values(), *self._former):
            node.close()
        self.app.sync.close()
        self.app.portal.close()


def _is_even(counts: Counter[str | None]) -> bool:
    return max(counts.values()) - min(counts.values()) <= 1


@contextlib.contextmanager
def cluster_on(store: Store, folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(store, folder)
    try:
        yield cluster
    finally:
        cluster.close()
