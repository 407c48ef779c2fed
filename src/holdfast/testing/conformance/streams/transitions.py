"""Transitions: the log of each state change of a share."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.allocation import KEPT_TRANSITIONS, GrantTo, Seize, SeizeReason, Share, ShareState
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Transition
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    GONE,
    GRACE,
    MANY,
    NODE_A,
    NODE_B,
    REJOINED_A,
    SHARE,
    StreamConformance,
    begin_consumer,
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
)

FREE, GRANTED, REVOKING = ShareState.FREE, ShareState.GRANTED, ShareState.REVOKING
SILENT = SeizeReason.SILENT


class TestShareTransitions(StreamConformance):
    """`AllocationStore.transitions`."""

    async def test_every_step_that_took_effect_leaves_a_transition(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        epoch, generation = (await lead(backend)).epoch, grant.generation
        start = clock.now
        clock.advance(GONE)
        await revoke(backend, grant, target="node-b")
        await seize(backend, grant, SILENT)
        await move_shares(backend, Seize(SHARE, generation, SILENT))
        assert await backend.streams.allocations.transitions(limit=MANY) == [
            Transition(SHARE, epoch, generation + 1, REVOKING, FREE, "node-a", clock.now),
            Transition(SHARE, epoch, generation, GRANTED, REVOKING, "node-a", clock.now),
            Transition(SHARE, epoch, generation, FREE, GRANTED, "node-a", start),
        ]
        assert len(await backend.streams.allocations.transitions(limit=2)) == 2

    async def test_a_release_leaves_a_transition_without_a_leader(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        assert await backend.streams.consumers.release(grant)
        (last,) = await backend.streams.allocations.transitions(limit=1)
        assert last == Transition(SHARE, 0, grant.generation, GRANTED, FREE, "node-a", clock.now)

    @pytest.mark.parametrize("how", ["join", "leave", "reset"])
    async def test_everything_else_that_frees_a_share_leaves_a_transition(
        self, backend: Backend, clock: ManualClock, how: str
    ) -> None:
        grant = await consuming(backend, "a")
        match how:
            case "join":
                await join(backend, REJOINED_A)
            case "leave":
                await backend.streams.allocations.leave(NODE_A)
            case _:
                clock.advance(GONE)
                await backend.streams.consumers.pause(CONSUMER)
                assert await backend.streams.consumers.reset(CONSUMER, 0)
        (last,) = await backend.streams.allocations.transitions(limit=1)
        assert last == Transition(SHARE, 0, grant.generation + 1, GRANTED, FREE, "node-a", clock.now)

    async def test_a_reset_is_recorded_for_a_free_share_too(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        assert await backend.streams.consumers.release(grant)
        await backend.streams.consumers.pause(CONSUMER)
        clock.advance(5)
        assert await backend.streams.consumers.reset(CONSUMER, 0)
        (last,) = await backend.streams.allocations.transitions(limit=1)
        assert last == Transition(SHARE, 0, grant.generation + 1, FREE, FREE, None, clock.now)
        assert (await share_view(backend)).since == timedelta(0)

    async def test_all_but_about_the_last_thousand_are_forgotten(self, backend: Backend) -> None:
        """However many shares they are spread over: the generation of each stays small."""
        partitions, rounds = 64, 20
        await begin_consumer(backend, partitions=partitions)
        leadership = await lead(backend)
        for number in range(rounds):
            await join(backend, NODE_A)
            shares = [Share(CONSUMER, CATEGORY, partition_id) for partition_id in range(partitions)]
            moves = [GrantTo(share, 2 * number, NODE_A) for share in shares]
            assert await backend.streams.allocations.move_shares(leadership, moves, grace=GRACE) == [True] * partitions
            await backend.streams.allocations.leave(NODE_A)
        steps = await backend.streams.allocations.transitions(limit=10 * KEPT_TRANSITIONS)
        assert KEPT_TRANSITIONS <= len(steps) <= KEPT_TRANSITIONS + 100 + partitions < 2 * rounds * partitions
        assert {step.generation for step in steps[:partitions]} == {2 * rounds}

    async def test_no_transition_leads_from_owner_to_owner(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, *"abc")
        for node in (NODE_B, NODE_A, NODE_B):
            await lose(backend, clock, grant)
            grant = await granted(backend, node)
            await revoke(backend, grant)
            assert await backend.streams.consumers.release(grant)
            grant = await grant_to(backend, node)
        steps = (await backend.streams.allocations.transitions(limit=MANY))[::-1]
        state, generation = FREE, 0
        for step in steps:
            assert (step.old_state, step.generation >= generation) == (state, True)
            assert step.new_state is not GRANTED or step.old_state is FREE
            state, generation = step.new_state, step.generation
