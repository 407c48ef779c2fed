"""Subscribe: what a consumer reads, where it starts, and which shares it has."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import permutations

import pytest

from holdfast.errors import ConfigError
from holdfast.model.allocation import Share, ShareState
from holdfast.model.event import partition_of
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict, Start, StartAt, Subscription
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    LEADER,
    LONG,
    MANY,
    NODE_A,
    NODE_B,
    SECOND,
    StreamConformance,
    append_to,
    begin_consumer,
    commit,
    consuming,
    granted,
    lead,
    needs_one_stream,
    needs_store_clock,
    positions,
    snapshot,
    stream_in,
)

LOG = Subscription()
ORDERS = Subscription(category=CATEGORY)
ONE_STREAM = Subscription(category=CATEGORY, stream="a")


async def complete(backend: Backend) -> int | None:
    """Create the missing shares, as the leader does."""
    return await backend.streams.allocations.complete_shares(await lead(backend))


class TestSubscribe(StreamConformance):
    """`ConsumerStore.subscribe`."""

    async def test_a_consumer_is_new_once(self, backend: Backend) -> None:
        consumers = backend.streams.consumers
        assert await consumers.subscribe(CONSUMER, ORDERS, StartAt.BEGINNING)
        assert not await consumers.subscribe(CONSUMER, ORDERS, StartAt.BEGINNING)
        (view,) = await consumers.consumers()
        assert (view.name, view.subscription, view.paused) == (CONSUMER, ORDERS, False)

    async def test_of_concurrent_subscriptions_one_creates_the_consumer(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 3)
        answers = await asyncio.gather(
            *(backend.streams.consumers.subscribe(CONSUMER, ORDERS, StartAt.END) for _ in range(8))
        )
        assert sorted(answers) == [False] * 7 + [True]
        assert len(await positions(backend)) == 3

    async def test_a_consumer_that_is_known_keeps_its_positions(self, backend: Backend) -> None:
        grant = await consuming(backend, *"abc")
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
        before = await snapshot(backend)
        for start in (StartAt.BEGINNING, StartAt.END, 1):
            assert not await backend.streams.consumers.subscribe(CONSUMER, ORDERS, start)
        assert await snapshot(backend) == before

    @pytest.mark.parametrize(
        ("known", "other"), [*permutations([LOG, ORDERS, ONE_STREAM, Subscription(category="sales")], 2)], ids=str
    )
    @needs_one_stream
    async def test_another_subscription_under_its_name_is_refused(
        self, backend: Backend, known: Subscription, other: Subscription
    ) -> None:
        await append_to(backend, "a")
        await backend.streams.consumers.subscribe(CONSUMER, known, StartAt.BEGINNING)
        before = await snapshot(backend)
        with pytest.raises(ConfigError):
            await backend.streams.consumers.subscribe(CONSUMER, other, StartAt.BEGINNING)
        assert await snapshot(backend) == before

    async def test_for_every_partition_there_is_a_free_allocation(self, backend: Backend) -> None:
        await begin_consumer(backend, partitions=3)
        survey = await backend.streams.allocations.survey()
        assert [each.share for each in survey.shares] == [Share(CONSUMER, CATEGORY, n) for n in range(3)]
        assert {(each.state, each.owner, each.target) for each in survey.shares} == {(ShareState.FREE, None, None)}
        assert survey.is_complete

    async def test_consumers_are_listed_by_name_and_have_shares_of_their_own(self, backend: Backend) -> None:
        await begin_consumer(backend, "a", consumer="shipping")
        await begin_consumer(backend, consumer=CONSUMER, start=StartAt.END)
        assert [view.name for view in await backend.streams.consumers.consumers()] == [CONSUMER, "shipping"]
        assert await positions(backend, "shipping") == {(CATEGORY, 0): 0}
        assert await positions(backend, CONSUMER) == {(CATEGORY, 0): 1}


class TestStart(StreamConformance):
    """Where a consumer starts."""

    @pytest.mark.parametrize(
        ("start", "expected"),
        [(StartAt.BEGINNING, (0, 0)), (StartAt.END, (4, 1)), (0, (0, 0)), (1, (1, 1)), (3, (3, 1)), (99, (4, 1))],
    )
    async def test_it_begins_at_the_beginning_the_end_or_past_a_position_but_not_past_the_head(
        self, backend: Backend, start: Start, expected: tuple[int, int]
    ) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, low, low, high, low, low, partitions=2, start=start)
        assert tuple((await positions(backend)).values()) == expected

    @needs_store_clock
    async def test_it_begins_with_the_first_event_at_or_after_an_instant(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        low, high = stream_in(0, 2), stream_in(1, 2)
        await append_to(backend, low, low)
        clock.advance(10)
        at = clock.now
        await append_to(backend, low, high)
        clock.advance(10)
        await begin_consumer(backend, partitions=2, start=at)
        await begin_consumer(backend, partitions=2, consumer="late", start=at + timedelta(seconds=1))
        assert await positions(backend) == {(CATEGORY, 0): 2, (CATEGORY, 1): 0}
        assert await positions(backend, "late") == {(CATEGORY, 0): 3, (CATEGORY, 1): 1}

    @pytest.mark.parametrize(("start", "expected"), [(StartAt.BEGINNING, 0), (StartAt.END, 3), (1, 1), (99, 3)])
    @needs_one_stream
    async def test_a_consumer_of_one_stream_begins_at_a_version(
        self, backend: Backend, start: Start, expected: int
    ) -> None:
        await append_to(backend, *"abbabba")
        await backend.streams.consumers.subscribe(CONSUMER, ONE_STREAM, start)
        assert list((await positions(backend)).values()) == [expected]

    @needs_one_stream
    async def test_a_consumer_of_one_stream_begins_with_its_first_event_at_or_after_an_instant(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await append_to(backend, *"baba")
        clock.advance(10)
        at = clock.now
        await append_to(backend, *"bba")
        await backend.streams.consumers.subscribe(CONSUMER, ONE_STREAM, at)
        assert list((await positions(backend)).values()) == [2]


@needs_one_stream
class TestOneStream(StreamConformance):
    """A subscription to one stream."""

    async def test_it_has_one_share_that_of_the_partition_in_which_the_stream_lies(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 5)
        await backend.streams.consumers.subscribe(CONSUMER, ONE_STREAM, StartAt.BEGINNING)
        assert await positions(backend) == {(CATEGORY, partition_of("a", 5)): 0}
        assert (await backend.streams.allocations.survey()).is_complete
        assert await complete(backend) == 0

    async def test_it_is_fed_the_events_of_the_stream_alone_and_its_position_is_a_version(
        self, backend: Backend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        ids = await append_to(backend, *"babba")
        await backend.streams.consumers.subscribe(CONSUMER, ONE_STREAM, StartAt.BEGINNING)
        grant = await granted(backend)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert [event.id for event in fetched.events] == [ids[1], ids[4]]
        assert (fetched.position, fetched.head) == (0, 2)
        assert await commit(backend, grant, 0, 1) is CommitVerdict.DONE
        (view,) = await backend.streams.consumers.consumers()
        assert (view.shares[0].position, view.shares[0].head, view.lag) == (1, 2, 1)
        fetched = await backend.streams.consumers.fetch(grant, after=1, limit=MANY)
        assert [event.id for event in fetched.events] == [ids[4]]

    async def test_it_is_not_behind_when_only_others_have_events(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, "a")
        await backend.streams.consumers.subscribe(CONSUMER, ONE_STREAM, StartAt.END)
        await append_to(backend, "b")
        clock.advance(SECOND)
        (view,) = await backend.streams.consumers.consumers()
        assert (view.lag, view.behind) == (0, None)


class TestCompletion(StreamConformance):
    """`AllocationStore.complete_shares`: partitions created after the subscription."""

    @needs_one_stream
    async def test_a_category_that_does_not_exist_is_not_made_and_has_no_shares(self, backend: Backend) -> None:
        for name, subscription in (("one", ORDERS), ("two", ONE_STREAM), ("three", LOG)):
            assert await backend.streams.consumers.subscribe(name, subscription, StartAt.END)
        assert await backend.streams.events.categories() == []
        survey = await backend.streams.allocations.survey()
        assert (survey.shares, survey.is_complete) == ((), True)

    async def test_the_log_is_all_categories_there_are(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        await backend.streams.events.open_category("sales", 1)
        await backend.streams.consumers.subscribe(CONSUMER, LOG, StartAt.BEGINNING)
        assert list(await positions(backend)) == [(CATEGORY, 0), (CATEGORY, 1), ("sales", 0)]

    @needs_one_stream
    async def test_shares_of_categories_made_later_begin_at_the_beginning_whatever_start_was(
        self, backend: Backend
    ) -> None:
        await begin_consumer(backend, "a", consumer="before", category="ledger")
        await backend.streams.consumers.subscribe("one", ORDERS, StartAt.END)
        await backend.streams.consumers.subscribe("two", ONE_STREAM, StartAt.END)
        await backend.streams.consumers.subscribe("three", LOG, 7)
        await backend.streams.events.open_category(CATEGORY, 2)
        await append_to(backend, *"aab")
        assert not (await backend.streams.allocations.survey()).is_complete
        assert await complete(backend) == 2 + 1 + 2
        assert (await backend.streams.allocations.survey()).is_complete
        assert await positions(backend, "one") == {(CATEGORY, 0): 0, (CATEGORY, 1): 0}
        assert await positions(backend, "two") == {(CATEGORY, partition_of("a", 2)): 0}
        assert await positions(backend, "three") == {(CATEGORY, 0): 0, (CATEGORY, 1): 0, ("ledger", 0): 1}

    async def test_what_is_complete_stays_as_it_is(self, backend: Backend) -> None:
        grant = await consuming(backend, *"ab")
        await commit(backend, grant, 0, 1)
        before = await snapshot(backend)
        assert await complete(backend) == 0
        assert await snapshot(backend) == before

    async def test_under_a_stale_leadership_nothing_is_made(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.consumers.subscribe(CONSUMER, LOG, StartAt.END)
        await append_to(backend, "a")
        stale = await lead(backend, LEADER, SECOND)
        clock.advance(SECOND * 2)
        await lead(backend, NODE_B, LONG)
        assert await backend.streams.allocations.complete_shares(stale) is None
        assert (await backend.streams.allocations.survey()).shares == ()

    async def test_a_share_that_was_completed_is_consumed_as_any_other(self, backend: Backend) -> None:
        await backend.streams.consumers.subscribe(CONSUMER, LOG, StartAt.END)
        await backend.streams.events.open_category(CATEGORY, 1)
        ids = await append_to(backend, *"ab")
        await complete(backend)
        grant = await granted(backend, NODE_A)
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert [event.id for event in fetched.events] == ids
        assert await commit(backend, grant, 0, 2) is CommitVerdict.DONE
