"""Parking: an event that cannot be handled is set aside with the later ones of its stream; other streams continue."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.model.allocation import Grant, Share
from holdfast.model.outcome import Failure
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CommitVerdict, Fetched, Park, ParkedView, StartAt, Subscription, Unpark
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    CONSUMER,
    FAILURE,
    MANY,
    NODE_A,
    NODE_B,
    SHARE,
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
    parked,
    share_view,
    snapshot,
    stream_in,
)

AGAIN = Failure(error_class="KeyError", message="still not")


async def fetch(backend: Backend, grant: Grant, after: int = 0, limit: int = MANY) -> Fetched:
    """Fetch with a live grant."""
    fetched = await backend.streams.consumers.fetch(grant, after=after, limit=limit)
    assert not fetched.is_lost
    return fetched


async def with_parked(backend: Backend, streams: str, parks: Sequence[int]) -> tuple[Grant, list[str]]:
    """Commit past one event per stream, with those at positions `parks` parked; the first of each stream failed."""
    ids = await begin_consumer(backend, *streams)
    grant = await granted(backend)
    failed: set[str] = set()
    steps: list[Park] = []
    for position in parks:
        stream = streams[position - 1]
        steps.append(Park(position, stream) if stream in failed else Park(position, stream, FAILURE, attempts=3))
        failed.add(stream)
    assert await commit(backend, grant, 0, len(streams), parks=tuple(steps)) is CommitVerdict.DONE
    return grant, ids


async def places(backend: Backend) -> list[int]:
    """Return the positions of the parked events."""
    return [view.position for view in await parked(backend)]


class TestPark(StreamConformance):
    """`Commit.parks`."""

    async def test_a_parked_event_is_passed_and_kept_with_its_failure(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        grant, ids = await with_parked(backend, "ab", [1])
        (view,) = await parked(backend)
        assert (view.share, view.position, view.event_id, view.stream) == (SHARE, 1, ids[0], "a")
        assert (view.failure, view.attempts, view.is_retrying, view.parked_at) == (FAILURE, 3, False, clock.now)
        assert await backend.streams.consumers.verify(grant) == 2
        assert (await share_view(backend)).parked == 1

    async def test_the_streams_that_have_parked_events_are_named_with_the_events_of_them(
        self, backend: Backend
    ) -> None:
        grant, _ = await with_parked(backend, "abca", [1, 3])
        assert (await fetch(backend, grant)).parked_streams == {"a", "c"}
        assert (await fetch(backend, grant, limit=2)).parked_streams == {"a"}
        assert (await fetch(backend, grant, after=1, limit=1)).parked_streams == frozenset()
        assert (await fetch(backend, grant, after=4)).parked_streams == frozenset()

    async def test_a_stream_whose_events_did_not_fit_is_not_named(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "abc", [1, 3])
        fetched = await backend.streams.consumers.fetch(grant, after=0, limit=MANY, max_bytes=1)
        assert ([event.stream for event in fetched.events], fetched.parked_streams) == (["a"], frozenset("a"))

    async def test_later_events_of_a_parked_stream_are_fetched_and_may_wait_behind_it(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await append_to(backend, "a", "b")
        assert [event.position for event in (await fetch(backend, grant, after=2)).events] == [3, 4]
        assert await commit(backend, grant, 2, 4, parks=(Park(3, "a"),)) is CommitVerdict.DONE
        assert [(view.position, view.failure) for view in await parked(backend)] == [(1, FAILURE), (3, None)]

    async def test_one_may_wait_behind_another_of_the_same_commit(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "aaba", [1, 2, 4])
        assert [(view.position, view.failure) for view in await parked(backend)] == [
            (1, FAILURE),
            (2, None),
            (4, None),
        ]
        assert (await fetch(backend, grant)).parked_streams == {"a"}

    async def test_a_repeat_parks_nothing_twice(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        before = await snapshot(backend)
        assert await commit(backend, grant, 0, 2, parks=(Park(1, "a", FAILURE),)) is CommitVerdict.DONE
        assert await snapshot(backend) == before

    async def test_a_repeat_does_not_park_again_what_an_operator_dropped(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        assert await backend.streams.consumers.drop_parked(CONSUMER) == 1
        assert await commit(backend, grant, 0, 2, parks=(Park(1, "a", FAILURE),)) is CommitVerdict.DONE
        assert await parked(backend) == []

    async def test_a_commit_that_is_lost_parks_nothing(self, backend: Backend, clock: ManualClock) -> None:
        grant = await consuming(backend, *"ab")
        assert await commit(backend, grant, 1, 2, parks=(Park(2, "b", FAILURE),)) is CommitVerdict.LOST
        await lose(backend, clock, grant)
        assert await commit(backend, grant, 0, 1, parks=(Park(1, "a", FAILURE),)) is CommitVerdict.LOST
        assert await parked(backend) == []

    async def test_an_event_that_was_to_wait_behind_events_an_operator_dropped_is_unparked(
        self, backend: Backend
    ) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await append_to(backend, "a")
        assert await backend.streams.consumers.drop_parked(CONSUMER) == 1
        before = await snapshot(backend)
        verdict = await commit(backend, grant, 2, 3, parks=(Park(3, "a"),))
        assert verdict is CommitVerdict.UNPARKED
        assert await snapshot(backend) == before
        assert await commit(backend, grant, 2, 3) is CommitVerdict.DONE

    async def test_events_parked_by_one_consumer_are_not_parked_for_another(self, backend: Backend) -> None:
        await with_parked(backend, "ab", [1])
        await begin_consumer(backend, consumer="shipping")
        other = await grant_to(backend, NODE_A, Share("shipping", CATEGORY, 0))
        assert (await fetch(backend, other)).parked_streams == frozenset()
        assert await parked(backend, "shipping") == []
        assert await commit(backend, other, 0, 1, parks=(Park(1, "a"),)) is CommitVerdict.UNPARKED

    async def test_a_stream_of_the_same_name_in_another_category_flows(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await backend.streams.events.open_category("sales", 1)
        await append_to(backend, "a")
        await append_to(backend, "a", category="sales")
        await backend.streams.consumers.subscribe(CONSUMER, Subscription(), StartAt.BEGINNING)
        await join(backend, NODE_A)
        orders = await grant_to(backend, NODE_A, SHARE)
        sales = await grant_to(backend, NODE_A, Share(CONSUMER, "sales", 0))
        assert await commit(backend, orders, 0, 1, parks=(Park(1, "a", FAILURE),)) is CommitVerdict.DONE
        assert (await fetch(backend, sales)).parked_streams == frozenset()

    async def test_the_next_owner_finds_what_is_parked(self, backend: Backend, clock: ManualClock) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await lose(backend, clock, grant)
        successor = await granted(backend, NODE_B)
        assert (await fetch(backend, successor)).parked_streams == {"a"}
        assert await places(backend) == [1]

    @needs_one_stream
    async def test_an_event_of_a_subscription_to_one_stream_is_parked_by_its_version(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        ids = await append_to(backend, *"bab")
        await backend.streams.consumers.subscribe(CONSUMER, Subscription(CATEGORY, "b"), StartAt.BEGINNING)
        grant = await granted(backend)
        assert await commit(backend, grant, 0, 2, parks=(Park(2, "b", FAILURE),)) is CommitVerdict.DONE
        assert [(view.position, view.event_id) for view in await parked(backend)] == [(2, ids[2])]
        assert await backend.streams.consumers.retry_parked(CONSUMER) == 1
        (retry,) = (await fetch(backend, grant, after=2)).retries
        assert (retry.event.id, retry.event.version) == (ids[2], 2)


class TestRetry(StreamConformance):
    """`ConsumerStore.retry_parked` and `Commit.unparks`."""

    async def test_parked_events_are_fetched_again_only_after_an_operators_retry(self, backend: Backend) -> None:
        grant, ids = await with_parked(backend, "abcaa", [1, 3, 4])
        assert (await fetch(backend, grant)).retries == ()
        assert await backend.streams.consumers.retry_parked(CONSUMER) == 3
        fetched = await fetch(backend, grant, after=5)
        assert [(each.event.id, each.attempts) for each in fetched.retries] == [(ids[0], 3), (ids[2], 3), (ids[3], 0)]
        assert [view.is_retrying for view in await parked(backend)] == [True] * 3

    async def test_at_most_limit_of_them_come_at_once(self, backend: Backend) -> None:
        grant, ids = await with_parked(backend, "abaca", [1, 3, 5])
        await backend.streams.consumers.retry_parked(CONSUMER)
        fetched = await fetch(backend, grant, after=5, limit=2)
        assert [each.event.id for each in fetched.retries] == [ids[0], ids[2]]

    async def test_those_of_one_stream_can_be_retried(self, backend: Backend) -> None:
        grant, ids = await with_parked(backend, "abba", [1, 2, 3, 4])
        assert await backend.streams.consumers.retry_parked(CONSUMER, "b") == 2
        assert [each.event.id for each in (await fetch(backend, grant)).retries] == [ids[1], ids[2]]
        assert await backend.streams.consumers.retry_parked(CONSUMER, "nowhere") == 0

    async def test_a_repeated_retry_request_counts_each_event_again(self, backend: Backend) -> None:
        await with_parked(backend, "abba", [1, 2, 3, 4])
        assert await backend.streams.consumers.retry_parked(CONSUMER, "b") == 2
        assert await backend.streams.consumers.retry_parked(CONSUMER) == 4
        assert await backend.streams.consumers.retry_parked(CONSUMER) == 4

    async def test_one_that_was_handled_is_parked_no_more(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "aba", [1, 3])
        await backend.streams.consumers.retry_parked(CONSUMER)
        assert await commit(backend, grant, 3, 3, unparks=(Unpark(1),)) is CommitVerdict.DONE
        assert await places(backend) == [3]
        assert (await fetch(backend, grant)).parked_streams == {"a"}
        assert await commit(backend, grant, 3, 3, unparks=(Unpark(3),)) is CommitVerdict.DONE
        fetched = await fetch(backend, grant)
        assert (fetched.parked_streams, fetched.retries, await parked(backend)) == (frozenset(), (), [])
        assert await backend.streams.consumers.verify(grant) == 3

    async def test_unparking_and_a_step_forward_are_one_commit(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await append_to(backend, "b")
        await backend.streams.consumers.retry_parked(CONSUMER)
        verdict = await commit(backend, grant, 2, 3, unparks=(Unpark(1),), parks=(Park(3, "b", FAILURE),))
        assert verdict is CommitVerdict.DONE
        assert await places(backend) == [3]

    async def test_unparks_go_first_so_that_nothing_waits_behind_what_is_handled(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await append_to(backend, "a")
        await backend.streams.consumers.retry_parked(CONSUMER)
        before = await snapshot(backend)
        verdict = await commit(backend, grant, 2, 3, unparks=(Unpark(1),), parks=(Park(3, "a"),))
        assert verdict is CommitVerdict.UNPARKED
        assert await snapshot(backend) == before

    async def test_a_repeat_unparks_nothing_twice(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "aba", [1, 3])
        await backend.streams.consumers.retry_parked(CONSUMER)
        for _ in range(2):
            assert await commit(backend, grant, 3, 3, unparks=(Unpark(1),)) is CommitVerdict.DONE
        assert await places(backend) == [3]

    async def test_unparking_what_an_operator_dropped_changes_nothing(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await backend.streams.consumers.retry_parked(CONSUMER)
        await backend.streams.consumers.drop_parked(CONSUMER)
        for unpark in (Unpark(1), Unpark(1, AGAIN)):
            assert await commit(backend, grant, 2, 2, unparks=(unpark,)) is CommitVerdict.DONE
        assert await parked(backend) == []

    async def test_one_that_fails_again_stays_parked_with_its_stream_until_the_next_retry(
        self, backend: Backend
    ) -> None:
        grant, ids = await with_parked(backend, "abaab", [1, 2, 3, 4])
        await backend.streams.consumers.retry_parked(CONSUMER)
        unparks = (Unpark(1), Unpark(3, AGAIN, attempts=2))
        assert await commit(backend, grant, 5, 5, unparks=unparks) is CommitVerdict.DONE
        assert [(view.position, view.failure, view.is_retrying) for view in await parked(backend)] == [
            (2, FAILURE, True),
            (3, AGAIN, False),
            (4, None, False),
        ]
        assert [each.event.id for each in (await fetch(backend, grant)).retries] == [ids[1]]
        assert await backend.streams.consumers.retry_parked(CONSUMER, "a") == 2
        assert [each.attempts for each in (await fetch(backend, grant)).retries] == [3, 2, 0]

    async def test_attempts_add_up_and_a_repeat_counts_none_twice(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        for attempts in (5, 7, 9):
            assert await backend.streams.consumers.retry_parked(CONSUMER) == 1
            for _ in range(2):
                unparks = (Unpark(1, AGAIN, attempts=2),)
                assert await commit(backend, grant, 2, 2, unparks=unparks) is CommitVerdict.DONE
            (view,) = await parked(backend)
            assert (view.attempts, view.failure, view.is_retrying) == (attempts, AGAIN, False)

    async def test_a_stale_grant_unparks_nothing(self, backend: Backend, clock: ManualClock) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await backend.streams.consumers.retry_parked(CONSUMER)
        await lose(backend, clock, grant)
        assert await commit(backend, grant, 2, 2, unparks=(Unpark(1),)) is CommitVerdict.LOST
        assert await places(backend) == [1]

    async def test_an_event_parked_to_wait_behind_ones_that_are_retried_is_retried_after_them(
        self, backend: Backend
    ) -> None:
        grant, ids = await with_parked(backend, "ab", [1])
        ids += await append_to(backend, "a")
        await backend.streams.consumers.retry_parked(CONSUMER)
        assert await commit(backend, grant, 2, 3, parks=(Park(3, "a"),)) is CommitVerdict.DONE
        assert [each.event.id for each in (await fetch(backend, grant)).retries] == [ids[0], ids[2]]

    async def test_an_event_parked_without_a_retry_request_is_not_retried(self, backend: Backend) -> None:
        grant, _ = await with_parked(backend, "ab", [1])
        await backend.streams.consumers.retry_parked(CONSUMER)
        await append_to(backend, "b", "b")
        parks = (Park(3, "b", FAILURE), Park(4, "b"))
        assert await commit(backend, grant, 2, 4, parks=parks) is CommitVerdict.DONE
        assert [view.is_retrying for view in await parked(backend)] == [True, False, False]


class TestDrop(StreamConformance):
    """`ConsumerStore.drop_parked` and `parked`."""

    @pytest.mark.parametrize(
        ("stream", "number", "left"),
        [
            (None, None, []),
            ("a", None, [2, 3]),
            (None, 2, [1, 2, 4]),
            ("b", 2, [1, 2, 4]),
            ("a", 2, [1, 2, 3, 4]),
            ("nowhere", None, [1, 2, 3, 4]),
        ],
    )
    async def test_all_those_of_a_stream_or_one_are_deleted(
        self, backend: Backend, stream: str | None, number: int | None, left: list[int]
    ) -> None:
        _, ids = await with_parked(backend, "abba", [1, 2, 3, 4])
        event_id = None if number is None else ids[number]
        dropped = await backend.streams.consumers.drop_parked(CONSUMER, stream=stream, event_id=event_id)
        assert dropped == 4 - len(left)
        assert await places(backend) == left

    async def test_later_events_of_a_stream_flow_again_when_it_has_none_left(self, backend: Backend) -> None:
        grant, ids = await with_parked(backend, "aba", [1, 3])
        await backend.streams.consumers.drop_parked(CONSUMER, event_id=ids[0])
        assert (await fetch(backend, grant)).parked_streams == {"a"}
        await backend.streams.consumers.drop_parked(CONSUMER, event_id=ids[2])
        assert (await fetch(backend, grant)).parked_streams == frozenset()

    async def test_what_another_consumer_has_parked_stays(self, backend: Backend) -> None:
        await with_parked(backend, "ab", [1])
        await begin_consumer(backend, consumer="shipping")
        assert await backend.streams.consumers.drop_parked("shipping") == 0
        assert await backend.streams.consumers.retry_parked("shipping") == 0
        assert await places(backend) == [1]

    async def test_parked_events_are_listed_in_pages_in_order_of_category_partition_and_position(
        self, backend: Backend
    ) -> None:
        low, high = stream_in(0, 2), stream_in(1, 2)
        await begin_consumer(backend, high, low, high, low, low, partitions=2)
        await join(backend, NODE_A)
        for partition_id, stream, positions in ((1, high, (1, 2)), (0, low, (1, 2, 3))):
            grant = await grant_to(backend, NODE_A, Share(CONSUMER, CATEGORY, partition_id))
            parks = tuple(Park(position, stream, FAILURE) for position in positions)
            assert await commit(backend, grant, 0, positions[-1], parks=parks) is CommitVerdict.DONE
        everything = await parked(backend)
        assert [(view.share.partition_id, view.position) for view in everything] == [
            (0, 1),
            (0, 2),
            (0, 3),
            (1, 1),
            (1, 2),
        ]
        pages: list[ParkedView] = []
        page = await backend.streams.consumers.parked(CONSUMER, limit=2)
        while page:
            pages += page
            page = await backend.streams.consumers.parked(CONSUMER, after=page[-1], limit=2)
        assert pages == everything


class TestLostRetries(StreamConformance):
    """A retry that kills its node counts as a loss, as any event does."""

    @pytest.mark.parametrize("failure", [None, AGAIN])
    async def test_the_end_of_a_retry_sets_losses_to_zero(
        self, backend: Backend, clock: ManualClock, failure: Failure | None
    ) -> None:
        grant, _ = await with_parked(backend, "a", [1])
        await backend.streams.consumers.retry_parked(CONSUMER, None)
        await lose(backend, clock, grant)
        grant = await granted(backend)
        await commit(backend, grant, 1, 1, begins_trial=True)
        assert (await share_view(backend)).losses == 1
        assert await commit(backend, grant, 1, 1, unparks=(Unpark(1, failure, 1),)) is CommitVerdict.DONE
        assert (await share_view(backend)).losses == 0
