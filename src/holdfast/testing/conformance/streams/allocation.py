"""Shares: their owners, and the conditions under which the leader may change them."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.allocation import (
    SUSPECTED,
    GrantTo,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    Share,
    ShareState,
)
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    DRAIN,
    GONE,
    LONG,
    MANY,
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
    granted,
    join,
    lead,
    lose,
    move_shares,
    revoke,
    seize,
    share_view,
    snapshot,
    state_of,
    surveyed,
)

FREE, GRANTED, REVOKING = ShareState.FREE, ShareState.GRANTED, ShareState.REVOKING
SILENT, REPLACED, OVERDUE = SeizeReason.SILENT, SeizeReason.REPLACED, SeizeReason.OVERDUE
ELSEWHERE = [Share("unknown", CATEGORY, 0), Share(CONSUMER, "nowhere", 0), Share(CONSUMER, CATEGORY, 9)]


async def refused(backend: Backend, *moves: Move) -> bool:
    """Return whether no move took effect and the state is unchanged."""
    before = await snapshot(backend)
    return await move_shares(backend, *moves) == [False] * len(moves) and await snapshot(backend) == before


class TestGrant(StreamConformance):
    """`GrantTo`."""

    async def test_a_free_share_is_granted_to_a_node_and_its_generation_grows_by_one(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        free = await surveyed(backend)
        assert await move_shares(backend, GrantTo(SHARE, free.generation, NODE_A)) == [True]
        now = await surveyed(backend)
        assert (now.state, now.generation, now.owner, now.overdue) == (GRANTED, free.generation + 1, NODE_A, False)
        view = await share_view(backend)
        assert (view.state, view.owner, view.generation) == (GRANTED, "node-a", now.generation)

    async def test_a_grant_clears_the_target_whichever_node_gets_it(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, target="node-b")
        assert await backend.streams.consumers.release(grant)
        await grant_to(backend, NODE_A)
        assert (await surveyed(backend)).target is None

    @pytest.mark.parametrize("is_revoked", [False, True])
    async def test_there_is_no_step_from_owner_to_owner(self, backend: Backend, is_revoked: bool) -> None:
        grant = await consuming(backend, "a")
        await join(backend, NODE_B)
        if is_revoked:
            await revoke(backend, grant)
        for node in (NODE_A, NODE_B):
            assert await refused(backend, GrantTo(SHARE, grant.generation, node))

    @pytest.mark.parametrize("off", [-1, 1])
    async def test_another_generation_than_the_one_seen_is_refused(self, backend: Backend, off: int) -> None:
        grant = await consuming(backend, "a")
        assert await backend.streams.consumers.release(grant)
        assert await refused(backend, GrantTo(SHARE, grant.generation + off, NODE_A))

    async def test_a_share_of_a_paused_consumer_is_not_granted(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        await backend.streams.consumers.pause(CONSUMER)
        assert await refused(backend, GrantTo(SHARE, (await surveyed(backend)).generation, NODE_A))
        await backend.streams.consumers.resume(CONSUMER)
        await grant_to(backend, NODE_A)

    async def test_a_node_that_has_not_joined_or_has_left_gets_nothing(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        generation = (await surveyed(backend)).generation
        assert await refused(backend, GrantTo(SHARE, generation, NODE_A))
        await join(backend, NODE_A)
        await backend.streams.allocations.leave(NODE_A)
        assert await refused(backend, GrantTo(SHARE, generation, NODE_A))

    async def test_another_incarnation_of_a_node_gets_nothing(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A, REJOINED_A)
        generation = (await surveyed(backend)).generation
        assert await refused(backend, GrantTo(SHARE, generation, NODE_A))
        assert await refused(backend, GrantTo(SHARE, generation, NodeKey("node-a", "life-3")))

    async def test_a_draining_node_gets_nothing(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        await backend.streams.allocations.drain(NODE_A)
        assert await refused(backend, GrantTo(SHARE, (await surveyed(backend)).generation, NODE_A))

    async def test_a_node_that_is_silent_past_its_ttl_gets_nothing(self, backend: Backend, clock: ManualClock) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        clock.advance(TIMING.ttl + SECOND)
        assert await refused(backend, GrantTo(SHARE, (await surveyed(backend)).generation, NODE_A))
        await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        clock.advance(TIMING.ttl - SECOND)
        await grant_to(backend, NODE_A)

    async def test_a_share_that_does_not_exist_is_not_granted(self, backend: Backend) -> None:
        await consuming(backend, "a")
        assert await refused(backend, *(GrantTo(share, 0, NODE_A) for share in ELSEWHERE))


class TestRevoke(StreamConformance):
    """`Revoke`."""

    async def test_a_granted_share_is_revoking_under_its_owner_and_generation(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        assert await move_shares(backend, Revoke(SHARE, grant.generation, DRAIN, "node-b")) == [True]
        now = await surveyed(backend)
        assert (now.state, now.generation, now.owner) == (REVOKING, grant.generation, NODE_A)
        assert (now.target, now.overdue) == ("node-b", False)

    async def test_it_is_overdue_when_its_deadline_has_passed(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=DRAIN)
        clock.advance(DRAIN - SECOND)
        assert not (await surveyed(backend)).overdue
        clock.advance(SECOND * 2)
        assert (await surveyed(backend)).overdue

    async def test_without_a_deadline_it_never_becomes_overdue(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=None)
        clock.advance(LONG)
        await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert not (await surveyed(backend)).overdue
        assert await refused(backend, Seize(SHARE, grant.generation, OVERDUE))

    async def test_a_share_that_is_not_granted_is_not_revoked(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        assert await refused(backend, Revoke(SHARE, (await surveyed(backend)).generation, DRAIN))
        grant = await granted(backend)
        await revoke(backend, grant)
        assert await refused(backend, Revoke(SHARE, grant.generation, LONG, "node-b"))
        assert await refused(backend, *(Revoke(share, 0, DRAIN) for share in ELSEWHERE))

    @pytest.mark.parametrize("off", [-1, 1])
    async def test_another_generation_than_the_one_seen_is_refused(self, backend: Backend, off: int) -> None:
        grant = await consuming(backend, "a")
        assert await refused(backend, Revoke(SHARE, grant.generation + off, DRAIN))


class TestSeize(StreamConformance):
    """`Seize`."""

    @pytest.mark.parametrize("is_revoked", [False, True])
    async def test_the_share_of_a_silent_owner_becomes_free_and_its_generation_grows_by_one(
        self, backend: Backend, clock: ManualClock, is_revoked: bool
    ) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 1)
        if is_revoked:
            await revoke(backend, grant, drain=None, target="node-b")
        clock.advance(GONE)
        await seize(backend, grant, SILENT)
        now = await surveyed(backend)
        assert (now.state, now.generation, now.owner) == (FREE, grant.generation + 1, None)
        assert now.target == ("node-b" if is_revoked else None)
        assert (await share_view(backend)).position == 1

    async def test_an_owner_is_not_silent_before_its_ttl_and_the_grace_have_passed(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(TIMING.ttl + SECOND)  # past its ttl, within the grace
        assert await refused(backend, Seize(SHARE, grant.generation, SILENT))
        await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        clock.advance(TIMING.ttl)
        assert await refused(backend, Seize(SHARE, grant.generation, SILENT))

    async def test_the_ttl_is_the_owners_and_the_grace_the_leaders(self, backend: Backend, clock: ManualClock) -> None:
        await begin_consumer(backend, "a")
        await backend.streams.allocations.join(a_node(NODE_A, timing=TIMING.scaled(3)))
        grant = await grant_to(backend, NODE_A)
        clock.advance(GONE)
        assert await refused(backend, Seize(SHARE, grant.generation, SILENT))
        clock.advance(TIMING.ttl * 2)
        move = Seize(SHARE, grant.generation, SILENT)
        assert await backend.streams.allocations.move_shares(await lead(backend), [move], grace=LONG) == [False]
        assert await move_shares(backend, move) == [True]

    async def test_a_revoked_share_is_seized_when_its_deadline_has_passed_though_its_owner_lives(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=SECOND * 3, target="node-b")
        clock.advance(SECOND * 2)
        assert await refused(backend, Seize(SHARE, grant.generation, OVERDUE))
        clock.advance(SECOND * 2)
        await seize(backend, grant, OVERDUE)
        now = await surveyed(backend)
        assert (now.state, now.generation, now.target) == (FREE, grant.generation + 1, "node-b")

    async def test_a_share_that_was_not_revoked_is_not_overdue(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        clock.advance(LONG)
        assert await refused(backend, Seize(SHARE, grant.generation, OVERDUE))

    async def test_a_deadline_ends_with_the_grant_that_was_revoked(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=SECOND)
        assert await backend.streams.consumers.release(grant)
        again = await grant_to(backend, NODE_A)
        clock.advance(SECOND * 2)
        (owned,) = (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).owned
        assert (owned.grant, owned.drain_left) == (again, None)
        assert await refused(backend, Seize(SHARE, again.generation, OVERDUE))
        await revoke(backend, again, drain=None)
        assert await refused(backend, Seize(SHARE, again.generation, OVERDUE))

    async def test_the_share_of_a_registered_owner_is_not_seized_as_replaced(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        assert await refused(backend, Seize(SHARE, grant.generation, REPLACED))
        clock.advance(LONG)
        assert await refused(backend, Seize(SHARE, grant.generation, REPLACED))

    @pytest.mark.parametrize("reason", SeizeReason)
    async def test_a_free_share_or_one_of_another_generation_is_not_seized(
        self, backend: Backend, clock: ManualClock, reason: SeizeReason
    ) -> None:
        grant = await consuming(backend, "a")
        await revoke(backend, grant, drain=SECOND)
        clock.advance(LONG)
        for off in (-1, 1):
            assert await refused(backend, Seize(SHARE, grant.generation + off, reason))
        assert await backend.streams.consumers.release(grant)
        assert await refused(backend, Seize(SHARE, grant.generation, reason))
        assert await refused(backend, *(Seize(share, 0, reason) for share in ELSEWHERE))

    async def test_losses_count_how_often_in_a_row_it_was_seized_at_one_position(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        for losses in (1, 2, 3):
            await lose(backend, clock, grant)
            assert (await share_view(backend)).losses == losses
            grant = await granted(backend)
            assert (await backend.streams.consumers.fetch(grant, after=0, limit=MANY)).losses == losses
        await commit(backend, grant, 0, 0)
        assert (await share_view(backend)).losses == 3
        await commit(backend, grant, 0, 1)
        assert (await share_view(backend)).losses == 0
        await lose(backend, clock, grant)
        assert (await share_view(backend)).losses == 1

    async def test_from_the_third_loss_on_only_those_count_whose_owner_was_handling_an_event(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        for _ in range(SUSPECTED + 2):
            await lose(backend, clock, grant)
            grant = await granted(backend)
        assert (await share_view(backend)).losses == SUSPECTED
        await commit(backend, grant, 0, 0, begins_trial=True)
        await lose(backend, clock, grant)
        assert (await share_view(backend)).losses == SUSPECTED + 1
        grant = await granted(backend)  # a new owner that has not started handling
        await lose(backend, clock, grant)
        assert (await share_view(backend)).losses == SUSPECTED + 1
        grant = await granted(backend)
        await commit(backend, grant, 0, 0, begins_trial=True)
        await commit(backend, grant, 0, 0)  # interrupted
        await lose(backend, clock, grant)
        assert (await share_view(backend)).losses == SUSPECTED + 1
        grant = await granted(backend)
        await commit(backend, grant, 0, 1, begins_trial=True)
        assert (await share_view(backend)).losses == 0


class TestAllocate(StreamConformance):
    """`AllocationStore.move_shares` and `survey`."""

    async def test_each_move_is_judged_after_those_before_it(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        clock.advance(GONE)
        await join(backend, NODE_B)
        generation = grant.generation
        moves = (
            GrantTo(SHARE, generation, NODE_B),
            Seize(SHARE, generation, SILENT),
            GrantTo(SHARE, generation + 1, NODE_B),
            GrantTo(SHARE, generation + 1, NODE_B),
            Revoke(SHARE, generation + 2, DRAIN),
        )
        assert await move_shares(backend, *moves) == [False, True, True, False, True]
        now = await surveyed(backend)
        assert (now.state, now.owner, now.generation) == (REVOKING, NODE_B, generation + 2)

    async def test_possible_moves_take_effect_though_others_are_refused(self, backend: Backend) -> None:
        await begin_consumer(backend, partitions=3)
        await join(backend, NODE_A)
        shares = (await backend.streams.allocations.survey()).shares
        moves = [GrantTo(each.share, each.generation + each.share.partition_id % 2, NODE_A) for each in shares]
        assert await move_shares(backend, *moves) == [True, False, True]
        assert [await state_of(backend, move.share) for move in moves] == [GRANTED, FREE, GRANTED]

    async def test_no_moves_are_answered_with_nothing(self, backend: Backend) -> None:
        assert await move_shares(backend) == []

    async def test_the_survey_lists_everything_in_order(self, backend: Backend) -> None:
        await begin_consumer(backend, "a", consumer="shipping", category="sales")
        await begin_consumer(backend, partitions=2)
        await join(backend, NODE_B, NODE_A)
        await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 1))
        await backend.streams.consumers.pause("shipping")
        survey = await backend.streams.allocations.survey()
        assert [view.node for view in survey.nodes] == [NODE_A, NODE_B]
        assert [view.shares for view in survey.nodes] == [1, 0]
        assert [(each.share, each.state) for each in survey.shares] == [
            (Share(CONSUMER, CATEGORY, 0), FREE),
            (Share(CONSUMER, CATEGORY, 1), GRANTED),
            (Share("shipping", "sales", 0), FREE),
        ]
        assert (survey.paused, survey.is_complete) == (frozenset({"shipping"}), True)

    async def test_the_survey_reports_how_long_a_share_has_been_in_its_state(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        clock.advance(3)
        await commit(backend, grant, 0, 1)
        assert (await share_view(backend)).since == timedelta(seconds=3)
        await revoke(backend, grant, target="node-b")
        view = await share_view(backend)
        assert (view.state, view.since, view.target) == (REVOKING, timedelta(0), "node-b")
        clock.advance(2)
        assert (await share_view(backend)).since == timedelta(seconds=2)
