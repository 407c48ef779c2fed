"""How long the shares of dead nodes were without an owner; of every node, under a supervisor or not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.torture.stream_stories import SECOND, StreamTale

from holdfast.model.allocation import NodeKey, Timing
from holdfast.store.stream_values import NewNode
from holdfast.torture.event import HistoryRecord
from holdfast.torture.events import Clock, Exited
from holdfast.torture.history import encode
from holdfast.torture.streams.checker import recoveries
from holdfast.torture.streams.names import PLAIN, SINGLE
from holdfast.torture.streams.recording_backend import KnownLeadership, RecordingAllocations
from holdfast.torture.streams.records import Joined, TransitionSeen

KILL = {"signal": 9}


class Told:
    """A history of nodes and shares, written to files; seconds are told from the begin of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = 0
        us = StreamTale.us(0)
        self.add("conductor-main-1", Clock(at_us=us, sent_us=us, store_us=us))

    def add(self, process: str, event: HistoryRecord) -> Told:
        with (self._folder / f"{process}.jsonl").open("ab") as file:
            file.write(encode(event))
        return self

    def joined(self, process: str, node: str) -> Told:
        return self.add(process, Joined(at_us=StreamTale.us(0), node=node))

    def exited(self, at: float, process: str, **how: int) -> Told:
        return self.add("conductor-main-1", Exited(at_us=StreamTale.us(at), process=process, **how))

    def step(self, at: float, state: str, node: str, *, consumer: str = SINGLE) -> Told:
        self._numbers += 1
        step: dict[str, Any] = {"consumer": consumer, "category": "c", "partition": 0, "generation": self._numbers}
        step |= {"epoch": 1, "number": self._numbers, "node": node, "old_state": "", "new_state": state}
        us = StreamTale.us(at)
        return self.add("conductor-main-1", TransitionSeen(at_us=us + SECOND, store_us=us, **step))

    def recovered(self) -> list[float]:
        return [round(seconds, 3) for seconds in recoveries(self._folder)]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_it_counts_from_the_death_of_a_node_to_the_next_grant_of_its_share(told: Told):
    told.joined("worker-w1-11", "w1").step(1, "granted", "w1").exited(5, "worker-w1-11", **KILL)

    assert told.step(7, "free", "w1").step(7.5, "granted", "w2").recovered() == [2.5]


def test_it_counts_for_a_node_under_a_supervisor_too(told: Told):
    told.joined("worker-w1-12", "w1.0").step(1, "granted", "w1.0").exited(5, "worker-w1-12", **KILL)

    assert told.step(5.2, "free", "w1.0").step(5.5, "granted", "w1.1").recovered() == [0.5]


def test_a_node_under_a_supervisor_dies_for_itself_alone(told: Told):
    told.joined("worker-w1-12", "w1.0").joined("worker-w1-13", "w1.1")
    told.step(1, "granted", "w1.0").step(1, "granted", "w1.1", consumer=PLAIN).exited(5, "worker-w1-12", **KILL)
    told.step(5.2, "free", "w1.0").step(5.5, "granted", "w1.0")

    assert told.step(8, "free", "w1.1", consumer=PLAIN).step(9, "granted", "w2", consumer=PLAIN).recovered() == [0.5]


def test_all_nodes_of_a_supervisor_that_is_killed_count_and_it_does_not(told: Told):
    told.joined("worker-w1-12", "w1.0").joined("worker-w1-13", "w1.1")
    told.step(1, "granted", "w1.0").step(1, "granted", "w1.1", consumer=PLAIN)
    told.exited(5, "worker-w1-11", **KILL).exited(5.1, "worker-w1-12", **KILL).exited(5.1, "worker-w1-13", **KILL)
    told.step(6.1, "free", "w1.0").step(6.1, "granted", "w2")
    told.step(7.1, "free", "w1.1", consumer=PLAIN).step(7.1, "granted", "w2", consumer=PLAIN)

    assert told.recovered() == [1.0, 2.0]


def test_whoever_was_killed_before_it_joined_owned_nothing(told: Told):
    told.joined("worker-w1-11", "w1").step(1, "granted", "w1")
    told.exited(5, "worker-w1-11", **KILL).exited(6, "worker-w1-12", **KILL)

    assert told.step(7, "free", "w1").step(7.5, "granted", "w2").recovered() == [2.5]


@pytest.mark.parametrize("how", [{"code": 0}, {}])
def test_whoever_was_not_killed_has_not_died(told: Told, how):
    told.joined("worker-w1-11", "w1").step(1, "granted", "w1").exited(5, "worker-w1-11", **how)

    assert told.step(7, "free", "w1").step(7.5, "granted", "w2").recovered() == []


async def test_a_node_writes_down_as_whom_it_takes_part():
    written: list[HistoryRecord] = []
    asked: list[NewNode] = []

    async def join(node: NewNode) -> None:
        assert not written  # what is written has happened
        asked.append(node)

    node = NewNode(node=NodeKey("w1.0", "i1"), host="h", pid=1, members=(), timing=Timing.for_recovery(2.0))
    store: Any = SimpleNamespace(join=join)
    recorder: Any = SimpleNamespace(write=written.append)
    await RecordingAllocations(store, recorder, KnownLeadership()).join(node)

    assert asked == [node]
    assert [event.node for event in written if isinstance(event, Joined)] == ["w1.0"]
