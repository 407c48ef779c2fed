"""The rest of the allocation port: reads without a heartbeat, a clock set back, and nodes gone for long."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.allocation import GrantTo, NodeKey, Seize, SeizeReason, ShareState
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    DRAIN,
    GRACE,
    LONG,
    NODE_A,
    NODE_B,
    REJOINED_A,
    SECOND,
    SHARE,
    TIMING,
    StreamConformance,
    begin_consumer,
    consuming,
    grant_to,
    join,
    lead,
    move_shares,
    revoke,
    snapshot,
    state_of,
    surveyed,
)

DAY = timedelta(days=1)


class TestOwned(StreamConformance):
    """`AllocationStore.owned`."""

    async def test_it_returns_what_a_heartbeat_would(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        owned = await backend.streams.allocations.owned(NODE_A)
        assert (owned.is_known, [each.grant for each in owned.owned]) == (True, [grant])
        await revoke(backend, grant, drain=DRAIN)
        clock.advance(4)
        (each,) = (await backend.streams.allocations.owned(NODE_A)).owned
        assert (each.grant, each.state, each.drain_left) == (grant, ShareState.REVOKING, DRAIN - SECOND * 4)
        assert await backend.streams.consumers.release(grant)
        owned = await backend.streams.allocations.owned(NODE_A)
        assert (owned.is_known, owned.owned) == (True, ())

    async def test_it_is_no_heartbeat_and_changes_nothing(self, backend: Backend, clock: ManualClock) -> None:
        await consuming(backend, "a")
        clock.advance(5)
        before = await snapshot(backend)
        await backend.streams.allocations.owned(NODE_A)
        assert await snapshot(backend) == before

    async def test_a_node_not_registered_under_this_incarnation_is_unknown(self, backend: Backend) -> None:
        await consuming(backend, "a")
        for stranger in (REJOINED_A, NODE_B):
            owned = await backend.streams.allocations.owned(stranger)
            assert (owned.is_known, owned.owned) == (False, ())


class TestClockSetBack(StreamConformance):
    """A node or leader that dies before the clock is set back does not appear alive for the size of the step."""

    async def test_the_leadership_of_a_dead_leader_is_still_taken(self, backend: Backend, clock: ManualClock) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(-LONG)
        second = await lead(backend, NODE_B, DRAIN)
        assert second.epoch == first.epoch + 1

    async def test_a_leader_that_lives_keeps_its_leadership(self, backend: Backend, clock: ManualClock) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(-LONG)
        assert await lead(backend, NODE_A, DRAIN) == first
        assert await backend.streams.allocations.lead(NODE_B, DRAIN) is None

    async def test_a_small_step_does_not_end_a_leadership(self, backend: Backend, clock: ManualClock) -> None:
        await lead(backend, NODE_A, DRAIN)
        clock.advance(-(DRAIN - SECOND))
        assert await backend.streams.allocations.lead(NODE_B, DRAIN) is None

    async def test_a_node_without_a_heartbeat_after_the_step_is_silent(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(-(TIMING.ttl + SECOND))
        assert await move_shares(backend, Seize(SHARE, grant.generation, SeizeReason.SILENT)) == [True]

    async def test_a_node_with_a_heartbeat_after_the_step_is_not_silent(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(-LONG)
        await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert await move_shares(backend, Seize(SHARE, grant.generation, SeizeReason.SILENT)) == [False]

    async def test_after_a_step_smaller_than_the_ttl_no_node_is_silent(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(-(TIMING.ttl - SECOND))
        assert await move_shares(backend, Seize(SHARE, grant.generation, SeizeReason.SILENT)) == [False]

    async def test_a_node_gets_nothing_until_its_next_heartbeat(self, backend: Backend, clock: ManualClock) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        clock.advance(-LONG)
        generation = (await surveyed(backend)).generation
        assert await move_shares(backend, GrantTo(SHARE, generation, NODE_A)) == [False]
        await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        await grant_to(backend, NODE_A)

    async def test_the_survey_reports_silence_and_age_correctly(self, backend: Backend, clock: ManualClock) -> None:
        await join(backend, NODE_A)
        clock.advance(-LONG)
        (view,) = (await backend.streams.allocations.survey()).nodes
        assert (view.silent, view.joined) == (-LONG, -LONG)


class TestForgottenNodes(StreamConformance):
    """`AllocationStore.complete_shares`: forgetting nodes."""

    async def test_nodes_silent_for_more_than_a_day_are_forgotten_though_no_share_is_lacking(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        clock.advance(SECOND * 2)
        await join(backend, NODE_B)
        clock.advance(DAY - SECOND)
        assert await backend.streams.allocations.complete_shares(await lead(backend)) == 0
        assert [view.node for view in await backend.streams.allocations.nodes()] == [NODE_B]

    async def test_nodes_that_own_something_are_kept(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        clock.advance(DAY * 2)
        assert await backend.streams.allocations.complete_shares(await lead(backend)) == 0
        assert [view.node for view in await backend.streams.allocations.nodes()] == [NODE_A]
        assert await move_shares(backend, Seize(SHARE, grant.generation, SeizeReason.SILENT)) == [True]
        await backend.streams.allocations.complete_shares(await lead(backend))
        assert await backend.streams.allocations.nodes() == []
        assert await state_of(backend) is ShareState.FREE

    @pytest.mark.parametrize("usurper", [NODE_B, NodeKey("leader", "life-2")], ids=["node", "incarnation"])
    async def test_a_stale_leader_forgets_no_node(self, backend: Backend, clock: ManualClock, usurper: NodeKey) -> None:
        await join(backend, NODE_A)
        stale = await lead(backend, lease=GRACE)
        clock.advance(DAY * 2)
        await lead(backend, usurper)
        assert await backend.streams.allocations.complete_shares(stale) is None
        assert [view.node for view in await backend.streams.allocations.nodes()] == [NODE_A]
