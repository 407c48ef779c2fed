"""Fencing: a former leader or owner writes nothing, however it lost its leadership or grant."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest

from holdfast.model.allocation import (
    Grant,
    GrantTo,
    Leadership,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    Share,
    ShareState,
)
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict, Park, StartAt, Subscription, Unpark
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MakeBackend
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    DRAIN,
    FAILURE,
    GONE,
    GRACE,
    LEADER,
    LONG,
    MANY,
    NODE_A,
    NODE_B,
    REJOINED_A,
    SECOND,
    SHARE,
    TIMING,
    StreamConformance,
    begin_consumer,
    commit,
    consuming,
    grant_to,
    granted,
    join,
    lead,
    lose,
    revoke,
    seize,
    share_view,
    snapshot,
    state_of,
    stream_in,
    surveyed,
)

Zombie = Callable[[Backend, ManualClock], Awaitable[Grant]]


async def _released(backend: Backend, _: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    assert await backend.streams.consumers.release(grant)
    return grant


async def _released_and_granted_to_another(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _released(backend, clock)
    await granted(backend, NODE_B)
    return grant


async def _released_and_granted_again(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _released(backend, clock)
    await grant_to(backend, NODE_A)
    return grant


async def _seized(backend: Backend, clock: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    await lose(backend, clock, grant)
    return grant


async def _seized_and_granted_to_another(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _seized(backend, clock)
    await granted(backend, NODE_B)
    return grant


async def _seized_and_passed_by_another(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _seized(backend, clock)
    assert await commit(backend, await granted(backend, NODE_B), 0, 1) is CommitVerdict.DONE
    return grant


async def _overdue(backend: Backend, clock: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    await revoke(backend, grant, drain=SECOND)
    clock.advance(SECOND * 2)
    await seize(backend, grant, SeizeReason.OVERDUE)
    return grant


async def _rejoined(backend: Backend, _: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    await join(backend, REJOINED_A)
    return grant


async def _rejoined_and_granted_again(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _rejoined(backend, clock)
    await grant_to(backend, REJOINED_A)
    return grant


async def _left(backend: Backend, _: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    await backend.streams.allocations.leave(NODE_A)
    return grant


async def _reset(backend: Backend, clock: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    clock.advance(GONE)
    await backend.streams.consumers.pause(CONSUMER)
    assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
    return grant


async def _released_and_reset(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _released(backend, clock)
    await backend.streams.consumers.pause(CONSUMER)
    assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
    return grant


async def _forgotten(backend: Backend, clock: ManualClock) -> Grant:
    grant = await consuming(backend, *"abc")
    clock.advance(GONE)
    await backend.streams.consumers.pause(CONSUMER)
    assert await backend.streams.consumers.forget(CONSUMER)
    return grant


async def _forgotten_subscribed_and_granted_again(backend: Backend, clock: ManualClock) -> Grant:
    grant = await _forgotten(backend, clock)
    await backend.streams.consumers.subscribe(CONSUMER, Subscription(CATEGORY), StartAt.BEGINNING)
    again = await granted(backend, NODE_A)
    assert again.generation > grant.generation
    return grant


ZOMBIES = [
    _released,
    _released_and_granted_to_another,
    _released_and_granted_again,
    _seized,
    _seized_and_granted_to_another,
    _seized_and_passed_by_another,
    _overdue,
    _rejoined,
    _rejoined_and_granted_again,
    _left,
    _reset,
    _released_and_reset,
    _forgotten,
    _forgotten_subscribed_and_granted_again,
]
every_zombie = pytest.mark.parametrize("zombie", ZOMBIES, ids=lambda zombie: zombie.__name__.strip("_"))


class TestStaleGrants(StreamConformance):
    """Every write under a grant, for every way in which the grant can be lost."""

    @every_zombie
    async def test_a_stale_grant_cannot_commit(self, backend: Backend, clock: ManualClock, zombie: Zombie) -> None:
        grant = await zombie(backend, clock)
        before = await snapshot(backend)
        for after, position in ((0, 1), (0, 0), (1, 1), (1, 2), (0, 3)):
            assert await commit(backend, grant, after, position) is CommitVerdict.LOST
        parks, unparks = (Park(1, "a", FAILURE),), (Unpark(1),)
        assert await commit(backend, grant, 0, 1, parks=parks, unparks=unparks) is CommitVerdict.LOST
        assert await snapshot(backend) == before

    @every_zombie
    async def test_a_stale_grant_cannot_release_verify_or_fetch(
        self, backend: Backend, clock: ManualClock, zombie: Zombie
    ) -> None:
        grant = await zombie(backend, clock)
        before = await snapshot(backend)
        assert not await backend.streams.consumers.release(grant)
        assert await backend.streams.consumers.verify(grant) is None
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert (fetched.is_lost, fetched.events, fetched.retries) == (True, [], ())
        assert await snapshot(backend) == before

    @pytest.mark.parametrize("off", [-1, 1])
    async def test_a_generation_from_the_future_is_as_stale_as_one_from_the_past(
        self, backend: Backend, off: int
    ) -> None:
        grant = await consuming(backend, *"ab")
        before = await snapshot(backend)
        forged = Grant(SHARE, grant.generation + off)
        assert await commit(backend, forged, 0, 1) is CommitVerdict.LOST
        assert not await backend.streams.consumers.release(forged)
        assert await backend.streams.consumers.verify(forged) is None
        assert await snapshot(backend) == before

    async def test_the_grant_of_one_share_is_not_valid_for_another(self, backend: Backend) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, high, partitions=2)
        await join(backend, NODE_A, NODE_B)
        mine = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 0))
        assert await backend.streams.consumers.release(mine)
        mine = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 0))
        other = await grant_to(backend, NODE_B, Share(CONSUMER, CATEGORY, 1))
        assert mine.generation != other.generation
        before = await snapshot(backend)
        assert await commit(backend, Grant(other.share, mine.generation), 0, 1) is CommitVerdict.LOST
        assert await snapshot(backend) == before

    async def test_a_node_that_was_frozen_learns_from_its_first_heartbeat_what_it_has_lost(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        await lose(backend, clock, grant)
        await granted(backend, NODE_B)
        heartbeat = await backend.streams.allocations.heartbeat(NODE_A, TIMING)
        assert (heartbeat.is_known, heartbeat.owned) == (True, ())

    async def test_either_the_owner_commits_before_the_seizure_or_it_is_refused(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"abcdefgh")
        for after in range(8):
            clock.advance(GONE)
            verdict, _ = await asyncio.gather(commit(backend, grant, after, after + 1), seize(backend, grant))
            view = await share_view(backend)
            assert (view.state, view.position) == (
                ShareState.FREE,
                after + 1 if verdict is CommitVerdict.DONE else after,
            )
            grant = await granted(backend, NODE_B if after % 2 else NODE_A)
            await commit(backend, grant, view.position, after + 1)


def every_move(grant: Grant, free: Grant) -> list[Move]:
    """Return moves that are all possible: for a share granted to a silent node, and for a free share."""
    return [
        GrantTo(free.share, free.generation, NODE_B),
        Revoke(grant.share, grant.generation, DRAIN, "node-b"),
        Seize(grant.share, grant.generation, SeizeReason.SILENT),
    ]


class TestLeaders(StreamConformance):
    """Two leaders at once cost time, never an effect."""

    async def _two_shares(self, backend: Backend, clock: ManualClock) -> tuple[Grant, Grant]:
        """Grant one of two shares to a node that falls silent; return it and the other, free share."""
        await begin_consumer(backend, partitions=2)
        grant = await granted(backend, NODE_A)
        clock.advance(GONE)
        await join(backend, NODE_B)
        share = Share(CONSUMER, CATEGORY, 1)
        return grant, Grant(share, (await surveyed(backend, share)).generation)

    async def test_under_a_stale_epoch_no_move_takes_effect(self, backend: Backend, clock: ManualClock) -> None:
        grant, free = await self._two_shares(backend, clock)
        stale = await lead(backend, LEADER, SECOND)
        clock.advance(SECOND * 2)
        current = await lead(backend, NODE_B, LONG)
        before = await snapshot(backend)
        moves = every_move(grant, free)
        for batch in ([], *([move] for move in moves), moves):
            assert await backend.streams.allocations.move_shares(stale, batch, grace=GRACE) is None
        assert await backend.streams.allocations.complete_shares(stale) is None
        assert await snapshot(backend) == before
        assert await backend.streams.allocations.move_shares(current, moves, grace=GRACE) == [True, True, True]

    async def test_neither_a_forged_epoch_nor_anothers_name_leads(self, backend: Backend, clock: ManualClock) -> None:
        grant, free = await self._two_shares(backend, clock)
        true = await lead(backend, LEADER, LONG)
        before = await snapshot(backend)
        for forged in (
            Leadership(LEADER, true.epoch + 1),
            Leadership(LEADER, true.epoch - 1),
            Leadership(NODE_B, true.epoch),
            Leadership(NodeKey(LEADER.node_id, "life-2"), true.epoch),
        ):
            assert await backend.streams.allocations.move_shares(forged, every_move(grant, free), grace=GRACE) is None
            assert not await backend.streams.allocations.resign(forged)
        assert await snapshot(backend) == before

    async def test_before_any_node_has_led_no_move_takes_effect(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await join(backend, NODE_A)
        for epoch in (0, 1):
            moves = [GrantTo(SHARE, 0, NODE_A)]
            assert await backend.streams.allocations.move_shares(Leadership(LEADER, epoch), moves, grace=GRACE) is None
        assert await state_of(backend) is ShareState.FREE

    async def test_the_end_of_its_lease_alone_does_not_make_a_leadership_stale(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await begin_consumer(backend, "a")
        leadership = await lead(backend, LEADER, SECOND)
        clock.advance(LONG)
        await join(backend, NODE_A)
        moves = [GrantTo(SHARE, (await surveyed(backend)).generation, NODE_A)]
        assert await backend.streams.allocations.move_shares(leadership, moves, grace=GRACE) == [True]

    async def test_moves_planned_on_a_state_that_has_passed_are_refused(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant, free = await self._two_shares(backend, clock)
        moves = every_move(grant, free)[::-1]  # seize first: a seized share cannot be revoked
        leadership = await lead(backend)
        assert await backend.streams.allocations.move_shares(leadership, moves, grace=GRACE) == [True, False, True]
        before = await snapshot(backend)
        assert await backend.streams.allocations.move_shares(leadership, moves, grace=GRACE) == [False, False, False]
        assert await snapshot(backend) == before


class TestConcurrentLeaders(StreamConformance):
    """A leader and its successor acting concurrently through two backends."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_either_the_old_leaders_moves_are_done_before_the_new_epoch_or_not_at_all(
        self, backend: Backend, make_backend: MakeBackend, clock: ManualClock
    ) -> None:
        other = await make_backend()
        await begin_consumer(backend, partitions=1)
        for turn in range(8):
            await join(backend, NODE_A)
            await backend.streams.allocations.heartbeat(NODE_A, TIMING)
            holder = await lead(backend, NodeKey(f"leader-{turn}", "life-1"), SECOND)
            clock.advance(SECOND * 2)
            free = await surveyed(backend)
            moves = [GrantTo(SHARE, free.generation, NODE_A)]
            done, usurper = await asyncio.gather(
                backend.streams.allocations.move_shares(holder, moves, grace=GRACE),
                other.streams.allocations.lead(NodeKey(f"usurper-{turn}", "life-1"), SECOND),
            )
            assert usurper is not None
            assert usurper.epoch == holder.epoch + 1
            assert done in (None, [True])
            now = await surveyed(backend)
            assert now.state is (ShareState.FREE if done is None else ShareState.GRANTED)
            clock.advance(SECOND * 2)
            if done:
                assert await backend.streams.consumers.release(Grant(SHARE, free.generation + 1))
