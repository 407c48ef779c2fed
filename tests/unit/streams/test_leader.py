"""A leader whose store goes away, and one whose store's clock is set: over the reference model, with clocks by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.allocation import NodeKey, ShareState, Timing
from holdfast.store.stream_values import Member, NewNode, StartAt, Subscription
from holdfast.streams import leader as module
from holdfast.streams.leader import Leader
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference.streams import ReferenceStreams, StreamReference

TIMING = Timing()
LEADER, OTHER = NodeKey("leader", "1"), NodeKey("other", "1")
PARTITIONS = 4


class Away:
    """Every verb fails while the store is away."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_away = False
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **names: Any) -> Any:
            self.calls.append(name)
            if self.is_away:
                raise StoreUnavailable("it is away")
            return await getattr(self._inner, name)(*arguments, **names)

        return call


class Scene:
    """Two nodes, of which one leads; time passes in seconds, for the store and for the leader."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.now = 1000.0
        self.streams = ReferenceStreams(StreamReference(self.clock))
        self.store = Away(self.streams.allocations)
        backend: Any = SimpleNamespace(
            streams=SimpleNamespace(allocations=self.store), notifier=SimpleNamespace(notify=lambda: None)
        )
        self.leader = Leader(backend, LEADER, TIMING)
        patch.setattr(module, "uptime", lambda: self.now)

    async def begin(self) -> None:
        await self.streams.events.open_category("orders", PARTITIONS)
        await self.streams.consumers.subscribe("billing", Subscription(category="orders"), StartAt.BEGINNING)
        for node in (LEADER, OTHER):
            await self.streams.allocations.join(NewNode(node, "here", 1, (Member("billing"),), TIMING))
        for _ in range(10):
            await self.pass_(1, reporting=(LEADER, OTHER))
        assert (await self.owners()) == {LEADER: 2, OTHER: 2}

    async def pass_(self, seconds: float, *, reporting: tuple[NodeKey, ...] = ()) -> None:
        self.clock.advance(seconds)
        self.now += seconds
        if not self.store.is_away:
            for node in reporting:
                await self.streams.allocations.heartbeat(node, TIMING)
        try:
            await self.leader.allocate_once()
        except StoreUnavailable:
            assert self.store.is_away

    async def owners(self) -> dict[NodeKey, int]:
        owners: dict[NodeKey, int] = {}
        for each in (await self.streams.allocations.survey()).shares:
            if each.owner is not None and each.state is ShareState.GRANTED:
                owners[each.owner] = owners.get(each.owner, 0) + 1
        return owners


@pytest.fixture
async def scene(monkeypatch):
    scene = Scene(monkeypatch)
    await scene.begin()
    return scene


async def test_after_an_outage_longer_than_ttl_and_grace_the_shares_of_the_living_are_neither_taken_nor_revoked(scene):
    scene.store.is_away = True
    for _ in range(30):
        await scene.pass_(1)
    scene.store.is_away = False
    await scene.pass_(1, reporting=(LEADER,))  # the other one has not come to report yet
    await scene.pass_(1, reporting=(LEADER,))
    assert await scene.owners() == {LEADER: 2, OTHER: 2}
    for _ in range(20):
        await scene.pass_(1, reporting=(LEADER, OTHER))
    assert await scene.owners() == {LEADER: 2, OTHER: 2}


async def test_who_died_in_the_outage_is_replaced_half_a_ttl_after_it(scene):
    scene.store.is_away = True
    for _ in range(30):
        await scene.pass_(1)
    scene.store.is_away = False
    for _ in range(7):
        await scene.pass_(1, reporting=(LEADER,))
    assert await scene.owners() == {LEADER: PARTITIONS}


async def test_a_node_that_dies_is_replaced_after_ttl_and_grace(scene):
    for _ in range(12):
        await scene.pass_(1, reporting=(LEADER,))
    assert await scene.owners() == {LEADER: 2, OTHER: 2}
    await scene.pass_(1, reporting=(LEADER,))
    assert await scene.owners() == {LEADER: PARTITIONS}


@pytest.mark.parametrize("step", [timedelta(days=2), -timedelta(days=2)], ids=["forward", "back"])
async def test_a_clock_that_is_set_moves_no_share_of_the_living(scene, step):
    scene.clock.advance(step)
    await scene.pass_(0)
    assert await scene.owners() == {LEADER: 2, OTHER: 2}
    for _ in range(20):
        await scene.pass_(1, reporting=(LEADER, OTHER))
    assert await scene.owners() == {LEADER: 2, OTHER: 2}


async def test_a_node_that_was_dead_when_the_clock_was_set_back_is_replaced_all_the_same(scene):
    for _ in range(3):
        await scene.pass_(1, reporting=(LEADER,))
    scene.clock.advance(-timedelta(days=2))
    for _ in range(10):
        await scene.pass_(1, reporting=(LEADER,))
    assert await scene.owners() == {LEADER: PARTITIONS}


async def test_nodes_that_died_long_ago_are_forgotten_though_no_share_is_lacking(scene):
    await scene.streams.allocations.leave(OTHER)
    await scene.streams.allocations.join(NewNode(NodeKey("dead", "1"), "here", 1, (), TIMING))
    for _ in range(49):
        await scene.pass_(3600, reporting=(LEADER,))
    assert [view.node for view in await scene.streams.allocations.nodes()] == [LEADER]
    assert scene.store.calls.count("complete_shares") < 100


async def test_a_quiet_leader_does_not_complete_shares_in_each_pass(scene):
    scene.store.calls.clear()
    for _ in range(60):
        await scene.pass_(1, reporting=(LEADER, OTHER))
    assert "complete_shares" not in scene.store.calls
