"""Nodes and leadership: registration, heartbeats, departure and leadership."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.model.allocation import SUSPECTED, GrantTo, NodeKey, Share, ShareState
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict, Member, NodeView
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    DRAIN,
    LEADER,
    LONG,
    NODE_A,
    NODE_B,
    REJOINED_A,
    SECOND,
    SHARE,
    TIMING,
    StreamConformance,
    a_node,
    begin_consumer,
    commit,
    consuming,
    grant_to,
    join,
    lead,
    move_shares,
    revoke,
    share_view,
    snapshot,
    surveyed,
)


async def node_view(backend: Backend, node: NodeKey = NODE_A) -> NodeView:
    """Return the view of a node."""
    (view,) = [view for view in await backend.streams.allocations.nodes() if view.node == node]
    return view


class TestJoin(StreamConformance):
    """`AllocationStore.join` and `nodes`."""

    async def test_a_node_is_registered_with_its_data(self, backend: Backend) -> None:
        new = msgspec.structs.replace(a_node(NODE_A), members=(Member("a", 3), Member("b")), host="h", pid=9)
        await backend.streams.allocations.join(new)
        (view,) = await backend.streams.allocations.nodes()
        assert (view.node, view.host, view.pid, set(view.members)) == (NODE_A, "h", 9, {Member("a", 3), Member("b")})
        assert (view.is_draining, view.silent, view.joined, view.ttl, view.shares) == (
            False,
            timedelta(0),
            timedelta(0),
            TIMING.ttl,
            0,
        )
        assert (await backend.streams.allocations.survey()).nodes == (view,)

    async def test_nodes_are_listed_in_order_with_the_number_of_their_shares(self, backend: Backend) -> None:
        await begin_consumer(backend, partitions=3)
        await join(backend, NODE_B, NODE_A)
        await grant_to(backend, NODE_B, Share(CONSUMER, CATEGORY, 0))
        await grant_to(backend, NODE_B, Share(CONSUMER, CATEGORY, 2))
        views = await backend.streams.allocations.nodes()
        assert [(view.node, view.shares) for view in views] == [(NODE_A, 0), (NODE_B, 2)]

    async def test_a_repeat_by_the_same_incarnation_changes_nothing_but_the_time(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await consuming(backend, "a")
        await backend.streams.allocations.drain(NODE_A)
        clock.advance(5)
        before = await snapshot(backend)
        silent = await node_view(backend)
        assert (silent.silent, silent.joined) == (timedelta(seconds=5), timedelta(seconds=5))
        other = msgspec.structs.replace(a_node(NODE_A, "other"), host="elsewhere", pid=99)
        await backend.streams.allocations.join(other)
        assert await node_view(backend) == msgspec.structs.replace(silent, silent=timedelta(0))
        assert (await snapshot(backend))[0] == before[0]

    async def test_a_new_incarnation_frees_the_shares_of_the_older_one_meant_for_the_node_itself(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 1)
        clock.advance(SECOND)
        await join(backend, REJOINED_A)
        free = await surveyed(backend)
        assert (free.state, free.owner, free.target) == (ShareState.FREE, None, "node-a")
        assert free.generation == grant.generation + 1
        assert (await share_view(backend)).position == 1
        assert [view.node for view in await backend.streams.allocations.nodes()] == [REJOINED_A]
        assert (await node_view(backend, REJOINED_A)).joined == timedelta(0)

    async def test_a_quick_restart_gets_its_shares_back_and_the_older_process_is_refused(
        self, backend: Backend
    ) -> None:
        grant = await consuming(backend, *"ab")
        await join(backend, REJOINED_A)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.LOST
        assert not (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).is_known
        again = await grant_to(backend, REJOINED_A)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.LOST
        assert await commit(backend, again, 0, 1) is CommitVerdict.DONE

    async def test_shares_that_were_being_revoked_are_freed_too(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, target="node-b")
        await join(backend, REJOINED_A)
        free = await surveyed(backend)
        assert (free.state, free.target) == (ShareState.FREE, "node-a")

    async def test_shares_of_other_nodes_stay(self, backend: Backend) -> None:
        await consuming(backend, "a")
        await join(backend, NODE_B)
        await join(backend, NodeKey("node-b", "life-2"))
        assert (await surveyed(backend)).owner == NODE_A

    async def test_it_counts_in_losses_as_a_seizure_does(self, backend: Backend) -> None:
        await consuming(backend, "a")
        for life in range(2, 5):
            reborn = NodeKey("node-a", f"life-{life}")
            await join(backend, reborn)
            await grant_to(backend, reborn)
        assert (await share_view(backend)).losses == 3

    async def test_from_the_third_loss_on_it_counts_only_if_an_event_was_being_handled(self, backend: Backend) -> None:
        await consuming(backend, "a")
        for life, losses in enumerate((1, 2, 3, 3, 4, 4), start=2):
            reborn = NodeKey("node-a", f"life-{life}")
            await join(backend, reborn)
            assert (await share_view(backend)).losses == losses
            grant = await grant_to(backend, reborn)
            if life == 5:
                await commit(backend, grant, 0, 0, begins_trial=True)

    async def test_a_new_incarnation_is_not_draining(self, backend: Backend) -> None:
        await join(backend, NODE_A)
        await backend.streams.allocations.drain(NODE_A)
        await join(backend, REJOINED_A)
        assert not (await node_view(backend, REJOINED_A)).is_draining


class TestHeartbeat(StreamConformance):
    """`AllocationStore.heartbeat`."""

    async def test_a_node_learns_what_it_owns(self, backend: Backend) -> None:
        await begin_consumer(backend, partitions=3)
        await join(backend, NODE_A, NODE_B)
        first = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 2))
        second = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 0))
        other = await grant_to(backend, NODE_B, Share(CONSUMER, CATEGORY, 1))
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert heartbeat.is_known
        assert [(owned.grant, owned.state, owned.drain_left) for owned in heartbeat.owned] == [
            (second, ShareState.GRANTED, None),
            (first, ShareState.GRANTED, None),
        ]
        assert [owned.grant for owned in (await backend.streams.allocations.heartbeat(NODE_B, TIMING)).owned] == [other]

    async def test_revoking_shares_are_among_them_with_the_time_that_is_left(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=DRAIN)
        for advance, left in ((4, 6), (60, 0)):
            clock.advance(advance)
            (owned,) = (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).owned
            assert (owned.grant, owned.state) == (grant, ShareState.REVOKING)
            assert owned.drain_left == timedelta(seconds=left)

    async def test_without_a_deadline_no_remaining_time_is_returned(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=None)
        (owned,) = (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).owned
        assert (owned.state, owned.drain_left) == (ShareState.REVOKING, None)

    async def test_it_ends_the_silence_and_updates_the_ttl(self, backend: Backend, clock: ManualClock) -> None:
        await join(backend, NODE_A)
        clock.advance(8)
        assert (await node_view(backend)).silent == timedelta(seconds=8)
        await backend.streams.allocations.heartbeat(NODE_A, TIMING.scaled(2))
        view = await node_view(backend)
        assert (view.silent, view.ttl, view.joined) == (timedelta(0), TIMING.ttl * 2, timedelta(seconds=8))

    async def test_a_node_that_is_not_registered_is_not_known_and_not_made(self, backend: Backend) -> None:
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert (heartbeat.is_known, heartbeat.owned) == (False, ())
        assert await backend.streams.allocations.nodes() == []

    async def test_another_incarnation_is_unknown_and_does_not_count_as_a_heartbeat(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await consuming(backend, "a")
        clock.advance(5)
        for stranger in (REJOINED_A, NodeKey("node-a", "life-0")):
            heartbeat = await backend.streams.allocations.heartbeat(stranger, TIMING)
            assert (heartbeat.is_known, heartbeat.owned) == (False, ())
        assert (await node_view(backend)).silent == timedelta(seconds=5)

    async def test_a_long_silent_node_is_alive_again_if_its_shares_were_not_seized(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        clock.advance(LONG)
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert (heartbeat.is_known, [owned.grant for owned in heartbeat.owned]) == (True, [grant])
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE


class TestHeartbeatThread(StreamConformance):
    """`Extender.node_heartbeat` and `owned`."""

    async def test_a_heartbeat_from_the_thread_ends_the_silence_and_returns_what_the_node_owns(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(8)
        extender = backend.extender()
        try:
            seen = extender.owned(NODE_A)
            assert (seen.is_known, [owned.grant for owned in seen.owned]) == (True, [grant])
            assert (await node_view(backend)).silent == timedelta(seconds=8)
            heartbeat = extender.node_heartbeat(NODE_A, TIMING.scaled(2))
            assert (heartbeat.is_known, [owned.grant for owned in heartbeat.owned]) == (True, [grant])
            view = await node_view(backend)
            assert (view.silent, view.ttl) == (timedelta(0), TIMING.ttl * 2)
        finally:
            extender.close()

    async def test_to_the_thread_too_another_incarnation_is_unknown(self, backend: Backend) -> None:
        await consuming(backend, "a")
        extender = backend.extender()
        try:
            assert not extender.node_heartbeat(REJOINED_A, TIMING).is_known
            assert not extender.owned(REJOINED_A).is_known
        finally:
            extender.close()


class TestLeave(StreamConformance):
    """`AllocationStore.leave` and `drain`."""

    async def test_what_it_owns_becomes_free_with_a_larger_generation_and_it_is_gone(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 1)
        await backend.streams.allocations.leave(NODE_A)
        free = await surveyed(backend)
        assert (free.state, free.owner, free.generation) == (ShareState.FREE, None, grant.generation + 1)
        view = await share_view(backend)
        assert (view.position, view.losses) == (1, 0)
        assert await backend.streams.allocations.nodes() == []
        assert not (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).is_known
        assert await commit(backend, grant, 1, 2) is CommitVerdict.LOST

    async def test_a_node_that_is_known_to_be_dead_counts_in_losses_as_a_seizure_does(self, backend: Backend) -> None:
        await consuming(backend, "a")
        for losses in (1, 2, SUSPECTED, SUSPECTED):
            await backend.streams.allocations.leave(NODE_A, is_lost=True)
            assert (await share_view(backend)).losses == losses
            await join(backend, NODE_A)
            grant = await grant_to(backend, NODE_A)
        assert await backend.streams.consumers.commit(grant, Commit(0, 0, begins_trial=True)) is CommitVerdict.DONE
        await backend.streams.allocations.leave(NODE_A, is_lost=True)
        assert (await share_view(backend)).losses == SUSPECTED + 1
        await backend.streams.allocations.leave(NODE_A, is_lost=True)
        assert (await share_view(backend)).losses == SUSPECTED + 1

    async def test_a_repeat_changes_nothing(self, backend: Backend) -> None:
        await consuming(backend, "a")
        await backend.streams.allocations.leave(NODE_A)
        before = await snapshot(backend)
        await backend.streams.allocations.leave(NODE_A)
        assert await snapshot(backend) == before

    @pytest.mark.parametrize("verb", ["leave", "drain"])
    async def test_a_stale_incarnation_changes_nothing(self, backend: Backend, verb: str) -> None:
        await consuming(backend, "a")
        await join(backend, REJOINED_A)
        await grant_to(backend, REJOINED_A)
        before = await snapshot(backend)
        await getattr(backend.streams.allocations, verb)(NODE_A)
        await getattr(backend.streams.allocations, verb)(NodeKey("unknown", "life-1"))
        assert await snapshot(backend) == before

    async def test_a_node_may_come_back_under_the_same_incarnation(self, backend: Backend) -> None:
        await consuming(backend, "a")
        await backend.streams.allocations.leave(NODE_A)
        await join(backend, NODE_A)
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert (heartbeat.is_known, heartbeat.owned) == (True, ())

    async def test_a_draining_node_keeps_what_it_has_and_gets_nothing_more(self, backend: Backend) -> None:
        await begin_consumer(backend, *"ab", partitions=2)
        await join(backend, NODE_A)
        grant = await grant_to(backend, NODE_A)
        await backend.streams.allocations.drain(NODE_A)
        assert (await node_view(backend)).is_draining
        other = await surveyed(backend, Share(CONSUMER, CATEGORY, 1))
        assert await move_shares(backend, GrantTo(other.share, other.generation, NODE_A)) == [False]
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert [owned.grant for owned in heartbeat.owned] == [grant]
        assert (await node_view(backend)).is_draining


class TestLead(StreamConformance):
    """`AllocationStore.lead`, `resign` and `leader`."""

    async def test_no_node_leads_until_one_takes_leadership(self, backend: Backend) -> None:
        assert await backend.streams.allocations.leader() is None
        leadership = await lead(backend, NODE_A, DRAIN)
        assert (leadership.node, leadership.epoch > 0) == (NODE_A, True)
        view = await backend.streams.allocations.leader()
        assert view is not None
        assert (view.leadership, view.expires_in) == (leadership, DRAIN)

    async def test_leadership_is_refused_while_another_node_holds_it(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        leadership = await lead(backend, NODE_A, DRAIN)
        clock.advance(DRAIN - SECOND)
        for other in (NODE_B, REJOINED_A):
            assert await backend.streams.allocations.lead(other, LONG) is None
        view = await backend.streams.allocations.leader()
        assert view is not None
        assert (view.leadership, view.expires_in) == (leadership, SECOND)

    async def test_the_holder_extends_its_lease_and_keeps_its_epoch(self, backend: Backend, clock: ManualClock) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(DRAIN - SECOND)
        assert await lead(backend, NODE_A, DRAIN) == first
        clock.advance(DRAIN - SECOND)
        assert await backend.streams.allocations.lead(NODE_B, DRAIN) is None

    async def test_the_holder_keeps_its_epoch_even_past_its_lease_if_no_other_node_took_it(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(LONG)
        view = await backend.streams.allocations.leader()
        assert view is not None
        assert view.expires_in == DRAIN - LONG
        assert await lead(backend, NODE_A, DRAIN) == first

    @pytest.mark.parametrize("usurper", [NODE_B, REJOINED_A], ids=["another node", "another incarnation"])
    async def test_another_takes_it_after_the_lease_and_the_epoch_grows_by_one(
        self, backend: Backend, clock: ManualClock, usurper: NodeKey
    ) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(DRAIN + SECOND)
        second = await lead(backend, usurper, DRAIN)
        assert (second.node, second.epoch) == (usurper, first.epoch + 1)
        assert await backend.streams.allocations.lead(NODE_A, DRAIN) is None

    async def test_of_concurrent_candidates_one_leads(self, backend: Backend, clock: ManualClock) -> None:
        first = await lead(backend, LEADER, DRAIN)
        clock.advance(DRAIN + SECOND)
        nodes = [NodeKey(f"node-{n}", "life-1") for n in range(8)]
        answers = await asyncio.gather(*(backend.streams.allocations.lead(node, DRAIN) for node in nodes))
        (winner,) = [answer for answer in answers if answer is not None]
        assert winner.epoch == first.epoch + 1

    async def test_after_a_resignation_any_node_may_lead_at_once_with_a_larger_epoch(self, backend: Backend) -> None:
        first = await lead(backend, NODE_A, LONG)
        assert await backend.streams.allocations.resign(first)
        assert await backend.streams.allocations.leader() is None
        second = await lead(backend, NODE_B, LONG)
        assert second.epoch == first.epoch + 1
        assert await backend.streams.allocations.resign(second)
        third = await lead(backend, NODE_B, LONG)
        assert third.epoch == second.epoch + 1

    async def test_after_resigning_the_leadership_is_stale(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        first = await lead(backend, NODE_A, LONG)
        assert await backend.streams.allocations.resign(first)
        assert not await backend.streams.allocations.resign(first)
        generation = (await surveyed(backend)).generation
        moves = [GrantTo(SHARE, generation, NODE_A)]
        assert await backend.streams.allocations.move_shares(first, moves, grace=SECOND) is None
        assert (await surveyed(backend)).state is ShareState.FREE

    async def test_a_replaced_leader_has_nothing_to_resign(self, backend: Backend, clock: ManualClock) -> None:
        first = await lead(backend, NODE_A, DRAIN)
        clock.advance(DRAIN + SECOND)
        second = await lead(backend, NODE_B, LONG)
        assert not await backend.streams.allocations.resign(first)
        view = await backend.streams.allocations.leader()
        assert view is not None
        assert view.leadership == second
