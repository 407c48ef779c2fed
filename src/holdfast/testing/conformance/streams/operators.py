"""Operator actions on consumers: list, pause, resume, reset, forget."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.allocation import Share, ShareState
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict, Park, Start, StartAt, Subscription
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    FAILURE,
    GONE,
    MANY,
    NODE_A,
    NODE_B,
    SECOND,
    SHARE,
    TIMING,
    StreamConformance,
    append_to,
    begin_consumer,
    commit,
    consuming,
    grant_to,
    granted,
    join,
    lose,
    needs_one_stream,
    needs_store_clock,
    parked,
    positions,
    revoke,
    share_view,
    snapshot,
    state_of,
    stream_in,
    surveyed,
)

VERBS: dict[str, tuple[Any, ...]] = {
    "pause": ("unknown",),
    "resume": ("unknown",),
    "reset": ("unknown", StartAt.BEGINNING),
    "forget": ("unknown",),
    "retry_parked": ("unknown",),
    "drop_parked": ("unknown",),
}


async def stopped(backend: Backend, *streams: str, position: int = 0) -> None:
    """Create a paused consumer that has consumed up to a position and whose share is free."""
    grant = await consuming(backend, *streams)
    assert await commit(backend, grant, 0, position) is CommitVerdict.DONE
    assert await backend.streams.consumers.release(grant)
    assert await backend.streams.consumers.pause(CONSUMER)


class TestLag(StreamConformance):
    """`ConsumerStore.consumers`."""

    async def test_the_lag_is_the_number_of_events_that_are_not_done(self, backend: Backend) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, low, low, high, partitions=2)
        await join(backend, NODE_A)
        grant = await grant_to(backend, NODE_A)
        await commit(backend, grant, 0, 2)
        (view,) = await backend.streams.consumers.consumers()
        assert [(each.position, each.head, each.lag) for each in view.shares] == [(2, 3, 1), (0, 1, 1)]
        assert (view.lag, view.parked) == (2, 0)

    @needs_store_clock
    async def test_behind_is_the_age_of_the_oldest_event_that_is_not_done(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend)
        assert (await share_view(backend)).behind is None
        for name in "abc":
            await append_to(backend, name)
            clock.advance(10)
        for position, seconds in ((0, 30), (1, 20), (2, 10)):
            await commit(backend, grant, max(position - 1, 0), position)
            assert (await share_view(backend)).behind == timedelta(seconds=seconds)
        await commit(backend, grant, 2, 3)
        (view,) = await backend.streams.consumers.consumers()
        assert (view.behind, view.lag) == (None, 0)

    @needs_one_stream
    async def test_of_a_consumer_of_one_stream_both_are_those_of_the_stream(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, *"ba")
        clock.advance(10)
        await append_to(backend, *"bab")
        clock.advance(10)
        await backend.streams.consumers.subscribe(CONSUMER, Subscription(CATEGORY, "b"), 1)
        view = await share_view(backend)
        assert (view.position, view.head, view.lag, view.behind) == (1, 3, 2, timedelta(seconds=10))

    async def test_what_is_parked_is_counted_and_not_behind(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 2, parks=(Park(1, "a", FAILURE), Park(2, "b", FAILURE)))
        (view,) = await backend.streams.consumers.consumers()
        assert (view.parked, view.lag, view.behind) == (2, 0, None)

    async def test_a_share_shows_who_owns_it_under_which_generation(self, backend: Backend) -> None:
        grant = await consuming(backend, "a")
        view = await share_view(backend)
        assert (view.owner, view.generation, view.state) == ("node-a", grant.generation, ShareState.GRANTED)
        await backend.streams.consumers.release(grant)
        view = await share_view(backend)
        assert (view.owner, view.generation, view.state) == (None, grant.generation, ShareState.FREE)

    @needs_store_clock
    async def test_a_share_has_a_position_at_an_instant(self, backend: Backend, clock: ManualClock) -> None:
        await begin_consumer(backend)
        await append_to(backend, *"aba")
        clock.advance(10)
        at = clock.now
        await append_to(backend, *"ba")
        await backend.streams.consumers.subscribe("one", Subscription(CATEGORY, "a"), StartAt.BEGINNING)
        consumers = backend.streams.consumers
        assert [await consumers.position_of(SHARE, when) for when in (at, at + SECOND)] == [3, 5]
        one = Share("one", CATEGORY, 0)
        assert [await consumers.position_of(one, when) for when in (at, at + SECOND)] == [2, 3]


class TestNotFound(StreamConformance):
    """Verbs that name an unknown consumer."""

    @pytest.mark.parametrize("verb", VERBS)
    async def test_a_consumer_that_never_subscribed_is_not_found(self, backend: Backend, verb: str) -> None:
        await begin_consumer(backend, "a")
        with pytest.raises(ConsumerNotFound):
            await getattr(backend.streams.consumers, verb)(*VERBS[verb])

    async def test_parked_events_and_positions_of_an_unknown_consumer_are_not_found(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await begin_consumer(backend, "a")
        with pytest.raises(ConsumerNotFound):
            await parked(backend, "unknown")
        with pytest.raises(ConsumerNotFound):
            await backend.streams.consumers.position_of(Share("unknown", CATEGORY, 0), clock.now)


class TestPause(StreamConformance):
    """`ConsumerStore.pause` and `resume`."""

    async def test_a_consumer_is_paused_and_resumed_once(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        consumers = backend.streams.consumers
        assert not await consumers.resume(CONSUMER)
        assert await consumers.pause(CONSUMER)
        assert not await consumers.pause(CONSUMER)
        assert [view.paused for view in await consumers.consumers()] == [True]
        assert (await backend.streams.allocations.survey()).paused == {CONSUMER}
        assert await consumers.resume(CONSUMER)
        assert not await consumers.resume(CONSUMER)
        assert [view.paused for view in await consumers.consumers()] == [False]
        assert (await backend.streams.allocations.survey()).paused == frozenset()

    async def test_what_is_granted_stays_so_until_the_leader_revokes_it(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await backend.streams.consumers.pause(CONSUMER)
        assert await state_of(backend) is ShareState.GRANTED
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
        await revoke(backend, grant)
        assert await commit(backend, grant, 1, 2) is CommitVerdict.DONE
        assert await backend.streams.consumers.release(grant)

    async def test_a_paused_consumer_stays_paused_when_it_is_subscribed_again(self, backend: Backend) -> None:
        await begin_consumer(backend, "a")
        await backend.streams.consumers.pause(CONSUMER)
        await begin_consumer(backend)
        assert (await backend.streams.allocations.survey()).paused == {CONSUMER}


class TestReset(StreamConformance):
    """`ConsumerStore.reset`."""

    @pytest.mark.parametrize(("to", "expected"), [(StartAt.BEGINNING, 0), (StartAt.END, 4), (1, 1), (3, 3), (99, 4)])
    async def test_the_positions_of_a_paused_consumer_are_set_but_not_past_the_head(
        self, backend: Backend, to: Start, expected: int
    ) -> None:
        await stopped(backend, *"abcd", position=2)
        assert await backend.streams.consumers.reset(CONSUMER, to)
        assert await positions(backend) == {(CATEGORY, 0): expected}

    @needs_store_clock
    async def test_it_is_set_to_the_first_event_at_or_after_an_instant(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await stopped(backend, *"abc", position=3)
        clock.advance(10)
        at = clock.now
        await append_to(backend, "d")
        assert await backend.streams.consumers.reset(CONSUMER, at)
        assert await positions(backend) == {(CATEGORY, 0): 3}

    async def test_every_share_is_set(self, backend: Backend) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, low, high, partitions=2, start=StartAt.END)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.reset(CONSUMER, 1)
        assert await positions(backend) == {(CATEGORY, 0): 1, (CATEGORY, 1): 1}

    async def test_generations_grow_and_no_share_has_a_target(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await revoke(backend, grant, target="node-b")
        await backend.streams.consumers.release(grant)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
        free = await surveyed(backend)
        assert (free.state, free.target) == (ShareState.FREE, None)
        assert free.generation > grant.generation

    async def test_it_is_refused_while_a_live_node_owns_a_share(self, backend: Backend, clock: ManualClock) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, high, partitions=2)
        await join(backend, NODE_A)
        grant = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, 1))
        await backend.streams.consumers.pause(CONSUMER)
        clock.advance(TIMING.ttl - SECOND)
        before = await snapshot(backend)
        assert not await backend.streams.consumers.reset(CONSUMER, StartAt.END)
        assert await snapshot(backend) == before
        await revoke(backend, grant)
        assert not await backend.streams.consumers.reset(CONSUMER, StartAt.END)
        assert await backend.streams.consumers.release(grant)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.END)

    async def test_the_shares_of_a_node_silent_past_its_ttl_become_free(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, *"ab")
        await backend.streams.consumers.pause(CONSUMER)
        clock.advance(TIMING.ttl + SECOND)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
        free = await surveyed(backend)
        assert (free.state, free.owner) == (ShareState.FREE, None)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.LOST
        assert (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).owned == ()

    @pytest.mark.parametrize("verb", ["reset", "forget"])
    async def test_a_consumer_that_is_not_paused_is_refused(self, backend: Backend, verb: str) -> None:
        await begin_consumer(backend, "a")
        before = await snapshot(backend)
        with pytest.raises(ConfigError):
            await getattr(backend.streams.consumers, verb)(CONSUMER, *([StartAt.END] if verb == "reset" else []))
        assert await snapshot(backend) == before

    async def test_events_up_to_the_present_head_are_marked_as_replayed(self, backend: Backend) -> None:
        await stopped(backend, *"abc", position=2)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
        await append_to(backend, "d")
        await backend.streams.consumers.resume(CONSUMER)
        grant = await grant_to(backend, NODE_A)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert (fetched.replay_until, fetched.position, len(fetched.events)) == (3, 0, 4)

    @needs_one_stream
    async def test_of_a_consumer_of_one_stream_they_are_those_up_to_its_version(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, *"bab")
        await backend.streams.consumers.subscribe(CONSUMER, Subscription(CATEGORY, "b"), StartAt.END)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.reset(CONSUMER, 1)
        await backend.streams.consumers.resume(CONSUMER)
        fetched = await backend.streams.consumers.fetch(await granted(backend), after=1, limit=MANY)
        assert (fetched.replay_until, fetched.position, [event.version for event in fetched.events]) == (2, 1, [2])

    async def test_what_was_parked_past_the_new_position_is_forgotten(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abc")
        parks = tuple(Park(position, stream, FAILURE) for position, stream in ((1, "a"), (2, "b"), (3, "c")))
        await commit(backend, grant, 0, 3, parks=parks)
        await backend.streams.consumers.release(grant)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.reset(CONSUMER, 2)
        assert [view.position for view in await parked(backend)] == [1, 2]

    async def test_losses_start_at_zero_again(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, "a")
        await lose(backend, clock, grant)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
        assert (await share_view(backend)).losses == 0

    async def test_another_consumer_is_left_alone(self, backend: Backend) -> None:
        await begin_consumer(backend, consumer="shipping")
        other = await granted(backend, NODE_B, Share("shipping", CATEGORY, 0))
        await stopped(backend, *"ab", position=2)
        await commit(backend, other, 0, 1)
        before = await share_view(backend, other.share)
        assert await backend.streams.consumers.reset(CONSUMER, StartAt.BEGINNING)
        assert await share_view(backend, other.share) == before


class TestForget(StreamConformance):
    """`ConsumerStore.forget`."""

    async def test_a_paused_consumer_is_deleted_with_all_it_had(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 2, parks=(Park(1, "a", FAILURE),))
        await backend.streams.consumers.release(grant)
        await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.forget(CONSUMER)
        assert await backend.streams.consumers.consumers() == []
        survey = await backend.streams.allocations.survey()
        assert (survey.shares, survey.paused) == ((), frozenset())
        with pytest.raises(ConsumerNotFound):
            await backend.streams.consumers.forget(CONSUMER)

    async def test_it_is_refused_while_a_live_node_owns_a_share(self, backend: Backend, clock: ManualClock) -> None:
        await consuming(backend, "a")
        await backend.streams.consumers.pause(CONSUMER)
        before = await snapshot(backend)
        assert not await backend.streams.consumers.forget(CONSUMER)
        assert await snapshot(backend) == before
        clock.advance(GONE)
        assert await backend.streams.consumers.forget(CONSUMER)
        assert (await backend.streams.allocations.heartbeat(NODE_A, TIMING)).owned == ()

    async def test_it_may_subscribe_again_to_something_else_and_starts_over(self, backend: Backend) -> None:
        await stopped(backend, *"ab", position=2)
        assert await backend.streams.consumers.forget(CONSUMER)
        assert await backend.streams.consumers.subscribe(CONSUMER, Subscription(), StartAt.BEGINNING)
        assert await positions(backend) == {(CATEGORY, 0): 0}
        assert (await backend.streams.allocations.survey()).paused == frozenset()
        assert await parked(backend) == []

    async def test_moves_planned_before_it_was_forgotten_apply_to_none_of_its_new_shares(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant = await consuming(backend, "a")
        clock.advance(GONE)
        assert await backend.streams.consumers.pause(CONSUMER)
        assert await backend.streams.consumers.forget(CONSUMER)
        assert await backend.streams.consumers.subscribe(CONSUMER, Subscription(), StartAt.BEGINNING)
        (share,) = (await backend.streams.allocations.survey()).shares
        assert (share.state, share.generation > grant.generation) == (ShareState.FREE, True)
        assert await backend.streams.consumers.verify(grant) is None
