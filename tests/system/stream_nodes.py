"""Nodes as real processes, what they consume, and a checker of what they did."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.system.harness import SOON, Program, eventually
from tests.system.stores import Store

from holdfast import App
from holdfast.store.stream_values import ConsumerView, Transition

PARTITIONS = 8
CREATE = (
    "create table stream_effect "
    "(partition_id bigint, position_id bigint, stream text, version bigint, node text, fence bigint)"
)


class Effect(NamedTuple):
    """A row of the table of effects, which has no unique constraint."""

    partition_id: int
    position: int
    stream: str
    version: int
    node: str
    fence: int


class Call(NamedTuple):
    """One call of a handler, from begin to end (None: it never ended), by the machine's monotonic clock."""

    node: str
    pid: int
    partition_id: int
    position: int
    fence: int
    begun: int
    ended: int | None


class Cluster:
    """A store with one category, and nodes that share its consumer's work."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.url = store.url
        self.app = App(store.url)
        self.nodes: dict[str, Program] = {}
        self._former: list[Program] = []
        self._record = folder / "record.jsonl"
        self._record.touch()
        self._appended = 0
        self.app.sync.category("orders", partitions=PARTITIONS)
        self.execute(CREATE)

    # --- the store ----------------------------------------------------------------------------------------------------

    def execute(self, statement: str) -> list[Any]:
        """Run a statement on a connection of our own, past every proxy."""
        if self.store.url.startswith("sqlite"):
            path = self.store.url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self.store.url, autocommit=True) as connection:
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
        self._appended += count

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start(self, name: str, *, recovery: float = 3.0, url: str | None = None, **environment: str) -> Program:
        """Start a node; one of this name that has ended is replaced."""
        if name in self.nodes:
            self._former.append(self.nodes[name])
        node = Program(
            "tests.system.apps.stream_app",
            environment={
                "STREAM_URL": url or self.url,
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

    def consumer(self) -> ConsumerView:
        return self.app.consumers.sync.show("billing")

    def owners(self) -> dict[int, str | None]:
        return {share.share.partition_id: share.owner for share in self.consumer().shares}

    def settled(self, *names: str, within: float = SOON) -> None:
        """Wait until every partition is owned, and every node named has some."""

        def look() -> bool:
            views = self.app.consumers.sync.list()
            owners = {share.owner for view in views for share in view.shares}
            return bool(views) and owners == set(names)

        eventually(look, f"the partitions are shared by {names}", within=within)

    def leader(self) -> tuple[str, int]:
        """Return who leads, and the epoch."""
        view = self.app.sync.leader()
        assert view is not None
        return view.leadership.node.node_id, view.leadership.epoch

    def transitions(self) -> list[Transition]:
        """Return the steps of all shares, oldest first."""
        allocations = self.app.backend.streams.allocations
        return self.app.portal.call(allocations.transitions(limit=1000))[::-1]

    # --- what was done ------------------------------------------------------------------------------------------------

    def drained(self, *, within: float = SOON) -> None:
        """Wait until every event is done."""
        eventually(
            lambda: self.consumer().lag == 0 and self.consumer().shares,
            "every event is done",
            within=within,
        )

    def effects(self) -> list[Effect]:
        return [Effect(*row) for row in self.execute("select * from stream_effect")]

    def calls(self) -> list[Call]:
        begun: dict[tuple[Any, ...], int] = {}
        calls: list[Call] = []
        for line in self._record.read_text().splitlines():
            what, *who, at = json.loads(line)
            if what == "begin":
                begun[tuple(who)] = at
            else:
                calls.append(Call(*who, begun.pop(tuple(who)), at))
        return calls + [Call(*who, at, None) for who, at in begun.items()]

    def assert_once_in_order(self, *, overlap_allowed: bool = False) -> None:
        """Every event has one effect, in order; generations and epochs grow; nobody worked beside another."""
        effects = self.effects()
        places = sorted((effect.partition_id, effect.position) for effect in effects)
        assert len(places) == len(set(places)), "an event took effect twice"
        heads = self.app.sync.categories()[0].heads
        assert places == [(part, n) for part, head in enumerate(heads) for n in range(1, head + 1)], "an event is lost"
        assert len(places) == self._appended
        self._assert_fences_grow(effects)
        self._assert_steps()
        if not overlap_allowed:
            self._assert_no_overlap()

    @staticmethod
    def _assert_fences_grow(effects: Sequence[Effect]) -> None:
        by_partition: dict[int, list[Effect]] = defaultdict(list)
        for effect in sorted(effects):
            by_partition[effect.partition_id].append(effect)
        for part in by_partition.values():
            fences = [effect.fence for effect in part]
            assert fences == sorted(fences), "an effect was written under an older generation than one before it"

    def _assert_steps(self) -> None:
        """No step from owner to owner; generations of a share never fall; nor do the epochs of leaders."""
        last: dict[object, Transition] = {}
        epoch = 0
        for step in self.transitions():
            before = last.get(step.share)
            if before is not None:
                assert before.new_state == step.old_state, f"{before} is followed by {step}"
                assert before.generation <= step.generation
            last[step.share] = step
            if step.epoch:
                assert step.epoch >= epoch, "an old leader has changed something"
                epoch = step.epoch

    def _assert_no_overlap(self) -> None:
        by_partition: dict[int, list[Call]] = defaultdict(list)
        for call in sorted(self.calls(), key=lambda call: call.begun):
            by_partition[call.partition_id].append(call)
        for calls in by_partition.values():
            for first, second in itertools.pairwise(calls):
                if first.ended is not None and first.pid != second.pid:
                    assert first.ended <= second.begun, f"{first} overlaps {second}"

    def close(self) -> None:
        for node in (*self.nodes.values(), *self._former):
            node.close()
        self.app.sync.close()
        self.app.portal.close()
