"""Trimming: old events are deleted, except those that a consumer still needs."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.errors import CategoryNotFound, VersionConflict
from holdfast.model.allocation import Share
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict, Park, StartAt, Subscription, Unpark
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    FAILURE,
    MANY,
    NODE_A,
    SECOND,
    StreamConformance,
    an_event,
    append,
    append_to,
    begin_consumer,
    commit,
    consuming,
    granted,
    needs_store_clock,
    parked,
    positions,
    read,
    stream_in,
)

ALL = timedelta(0)


async def trim(backend: Backend, *, older_than: timedelta = ALL, limit: int = MANY, past_unread: bool = False) -> int:
    """Trim the category."""
    return await backend.streams.events.trim(CATEGORY, older_than=older_than, limit=limit, past_unread=past_unread)


async def kept(backend: Backend, partition_id: int = 0) -> list[int]:
    """Return the positions that are kept."""
    return [event.position for event in await read(backend, partition_id=partition_id)]


async def fill(backend: Backend, clock: ManualClock, streams: str = "abcd") -> list[str]:
    """Append one event per stream to a category of one partition, one second apart."""
    await backend.streams.events.open_category(CATEGORY, 1)
    ids: list[str] = []
    for stream in streams:
        ids += await append_to(backend, stream)
        clock.advance(SECOND)
    return ids


@needs_store_clock
class TestTrim(StreamConformance):
    """`EventStore.trim` without consumers."""

    async def test_events_recorded_longer_ago_are_deleted(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        assert await trim(backend, older_than=timedelta(seconds=2.5)) == 2
        assert await kept(backend) == [3, 4]
        assert await trim(backend, older_than=timedelta(seconds=2.5)) == 0

    async def test_at_most_limit_events_are_deleted_the_oldest_first(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await fill(backend, clock)
        assert await trim(backend, limit=3) == 3
        assert await kept(backend) == [4]

    async def test_every_partition_is_trimmed_within_one_limit(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        await append_to(backend, *[stream_in(0, 2)] * 4, *[stream_in(1, 2)] * 3)
        clock.advance(SECOND)
        assert await trim(backend, limit=5) == 5
        (view,) = await backend.streams.events.categories()
        assert sum(view.trimmed) == 5
        assert [await kept(backend, n) for n in range(2)] == [
            list(range(view.trimmed[n] + 1, view.heads[n] + 1)) for n in range(2)
        ]
        assert await trim(backend, limit=5) == 2

    async def test_another_category_is_left_alone(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        await append_to(backend, "a", category="sales")
        clock.advance(SECOND)
        await trim(backend)
        assert await backend.streams.events.read_stream("sales", "a", limit=MANY) != []

    async def test_positions_and_versions_are_not_used_again(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock, "aab")
        assert await trim(backend) == 3
        assert await kept(backend) == []
        assert await backend.streams.events.stream_version(CATEGORY, "a") == 2
        with pytest.raises(VersionConflict):
            await backend.streams.events.append([an_event("a", expected_version=0)])
        (place,) = await append(backend, an_event("a", expected_version=2))
        assert (place.position, place.version) == (4, 3)

    async def test_the_category_shows_what_was_appended_and_what_is_kept(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await fill(backend, clock)
        await trim(backend, limit=3)
        (view,) = await backend.streams.events.categories()
        assert (view.heads, view.trimmed, view.appended, view.kept) == ((4,), (3,), 4, 1)

    async def test_a_trimmed_stream_is_read_from_what_is_kept(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock, "aaa")
        await trim(backend, limit=2)
        for backwards in (False, True):
            events = await backend.streams.events.read_stream(CATEGORY, "a", limit=MANY, backwards=backwards)
            assert [event.version for event in events] == [3]

    async def test_the_id_of_a_kept_event_is_still_known(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, "a")
        event = an_event("a", expected_version=1)
        clock.advance(SECOND)
        (place,) = await append(backend, event)
        assert await trim(backend) == 1
        assert await backend.streams.events.append([event]) == [msgspec.structs.replace(place, is_new=False)]

    async def test_a_category_that_does_not_exist_is_not_found(self, backend: Backend) -> None:
        with pytest.raises(CategoryNotFound):
            await trim(backend)


@needs_store_clock
class TestNeeded(StreamConformance):
    """Events that a consumer has not passed, or has parked."""

    async def test_what_a_consumer_has_not_passed_stays(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        grant = await consuming(backend)
        assert await trim(backend) == 0
        await commit(backend, grant, 0, 2)
        assert await trim(backend) == 2
        assert await kept(backend) == [3, 4]

    async def test_the_slowest_consumer_decides(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        for consumer, start in (("fast", 4), ("slow", 1), ("middle", 3)):
            await begin_consumer(backend, consumer=consumer, start=start)
        assert await trim(backend) == 1

    async def test_a_paused_consumer_still_needs_its_events(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        await begin_consumer(backend)
        await backend.streams.consumers.pause(CONSUMER)
        assert await trim(backend) == 0
        assert await backend.streams.consumers.forget(CONSUMER)
        assert await trim(backend) == 4

    async def test_a_parked_event_stays_and_all_that_lies_behind_it(self, backend: Backend, clock: ManualClock) -> None:
        ids = await fill(backend, clock)
        grant = await consuming(backend)
        await commit(backend, grant, 0, 4, parks=(Park(3, "c", FAILURE),))
        assert await trim(backend) == 2
        assert await kept(backend) == [3, 4]
        await backend.streams.consumers.retry_parked(CONSUMER)
        fetched = await backend.streams.consumers.fetch(grant, after=4, limit=MANY)
        assert [retry.event.id for retry in fetched.retries] == [ids[2]]
        assert await commit(backend, grant, 4, 4, unparks=(Unpark(3),)) is CommitVerdict.DONE
        assert await trim(backend) == 2

    async def test_a_consumer_of_one_stream_has_passed_all_the_events_of_others(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await fill(backend, clock, "babab")
        await backend.streams.consumers.subscribe(CONSUMER, Subscription(CATEGORY, "a"), StartAt.BEGINNING)
        assert await trim(backend) == 1
        grant = await granted(backend)
        await commit(backend, grant, 0, 1)
        assert await trim(backend) == 2
        assert await commit(backend, grant, 1, 2, parks=(Park(2, "a", FAILURE),)) is CommitVerdict.DONE
        assert await trim(backend) == 0
        await backend.streams.consumers.drop_parked(CONSUMER)
        assert await trim(backend) == 2

    @pytest.mark.parametrize(
        "subscription",
        [Subscription(), Subscription(CATEGORY), Subscription(CATEGORY, "b")],
        ids=["the log", "the category", "a stream"],
    )
    async def test_a_consumer_that_lacks_its_share_has_passed_nothing(
        self, backend: Backend, clock: ManualClock, subscription: Subscription
    ) -> None:
        await backend.streams.consumers.subscribe(CONSUMER, subscription, StartAt.END)
        await fill(backend, clock, "bcd")
        assert await trim(backend) == 0

    async def test_a_consumer_of_another_category_needs_nothing(self, backend: Backend, clock: ManualClock) -> None:
        await begin_consumer(backend, consumer="other", category="sales")
        await fill(backend, clock)
        assert await trim(backend) == 4

    async def test_past_unread_all_goes_and_positions_stay(self, backend: Backend, clock: ManualClock) -> None:
        await fill(backend, clock)
        grant = await consuming(backend)
        await commit(backend, grant, 0, 2, parks=(Park(1, "a", FAILURE), Park(2, "b", FAILURE)))
        assert await trim(backend, limit=1, past_unread=True) == 1
        assert [view.position for view in await parked(backend)] == [2]
        assert await trim(backend, past_unread=True) == 3
        assert await parked(backend) == []
        assert await positions(backend) == {(CATEGORY, 0): 2}
        fetched = await backend.streams.consumers.fetch(grant, after=2, limit=MANY)
        assert (fetched.events, fetched.head, fetched.parked_streams) == ([], 4, frozenset())

    async def test_a_consumer_that_begins_after_a_trim_gets_what_is_kept(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await fill(backend, clock)
        await trim(backend, limit=2)
        await begin_consumer(backend)
        grant = await granted(backend, NODE_A, Share(CONSUMER, CATEGORY, 0))
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY)
        assert [event.position for event in fetched.events] == [3, 4]
        assert await commit(backend, grant, 0, 4) is CommitVerdict.DONE
