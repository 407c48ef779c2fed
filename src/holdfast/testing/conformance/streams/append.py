"""Append: all or none, each event once, at the next position of its partition and the next version of its stream."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.errors import CategoryNotFound, ConfigError, VersionConflict
from holdfast.model.event import DEFAULT_PARTITIONS, partition_of
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    SECOND,
    StreamConformance,
    an_event,
    append,
    append_to,
    needs_counts,
    needs_expected_version,
    needs_store_clock,
    read,
    stream_in,
)


class TestCategories(StreamConformance):
    """`EventStore.open_category` and `categories`."""

    async def test_a_category_is_made_with_the_number_of_partitions_asked_for(self, backend: Backend) -> None:
        view = await backend.streams.events.open_category(CATEGORY, 3)
        assert (view.name, view.partitions, view.heads, view.trimmed) == (CATEGORY, 3, (0, 0, 0), (0, 0, 0))
        assert (view.appended, view.kept) == (0, 0)

    async def test_none_makes_it_with_the_default_number(self, backend: Backend) -> None:
        assert (await backend.streams.events.open_category(CATEGORY)).partitions == DEFAULT_PARTITIONS

    async def test_none_takes_it_as_it_is(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 3)
        await append_to(backend, stream_in(1, 3))
        view = await backend.streams.events.open_category(CATEGORY)
        assert (view.partitions, view.heads) == (3, (0, 1, 0))

    async def test_a_repeat_returns_it(self, backend: Backend) -> None:
        first = await backend.streams.events.open_category(CATEGORY, 3)
        assert await backend.streams.events.open_category(CATEGORY, 3) == first

    async def test_another_number_of_partitions_is_refused_and_it_stays_as_it_is(self, backend: Backend) -> None:
        before = await backend.streams.events.open_category(CATEGORY, 3)
        with pytest.raises(ConfigError):
            await backend.streams.events.open_category(CATEGORY, 4)
        assert await backend.streams.events.categories() == [before]

    async def test_concurrent_opens_return_the_same_category(self, backend: Backend) -> None:
        views = await asyncio.gather(*(backend.streams.events.open_category(CATEGORY, 3) for _ in range(8)))
        assert set(views) == {views[0]}

    async def test_categories_are_listed_by_name_with_what_they_hold(self, backend: Backend) -> None:
        await backend.streams.events.open_category("sales", 1)
        await backend.streams.events.open_category(CATEGORY, 2)
        await append_to(backend, *[stream_in(0, 2)] * 3, stream_in(1, 2))
        orders, sales = await backend.streams.events.categories()
        assert (orders.name, orders.heads, orders.appended, orders.kept) == (CATEGORY, (3, 1), 4, 4)
        assert (sales.name, sales.heads) == ("sales", (0,))


class TestPlaces(StreamConformance):
    """`EventStore.append`: positions and versions."""

    @needs_counts
    async def test_positions_grow_by_one_within_a_partition_and_versions_within_a_stream(
        self, backend: Backend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        places = await append(backend, an_event("a"), an_event("b"), an_event("a"))
        places += await append(backend, an_event("b"), an_event("a"))
        assert [place.position for place in places] == [1, 2, 3, 4, 5]
        assert [place.version for place in places] == [1, 1, 2, 2, 3]

    async def test_every_partition_counts_its_own_positions(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        low, high = stream_in(0, 2), stream_in(1, 2)
        places = await append(backend, an_event(high), an_event(low), an_event(high))
        assert [(place.partition_id, place.position) for place in places] == [(1, 1), (0, 1), (1, 2)]

    @needs_counts
    async def test_a_stream_lies_in_the_partition_that_its_name_determines(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 5)
        names = [f"order-{n}" for n in range(20)]
        places = await append(backend, *map(an_event, names))
        assert [place.partition_id for place in places] == [partition_of(name, 5) for name in names]

    @needs_counts
    async def test_streams_of_one_name_in_two_categories_are_two(self, backend: Backend) -> None:
        places = await append(backend, an_event("a"), an_event("a", category="sales"))
        assert [place.version for place in places] == [1, 1]

    async def test_a_category_that_does_not_exist_is_made_with_the_default_number_of_partitions(
        self, backend: Backend
    ) -> None:
        await append_to(backend, "a", category="sales")
        (view,) = await backend.streams.events.categories()
        assert (view.name, view.partitions, view.appended) == ("sales", DEFAULT_PARTITIONS, 1)

    async def test_an_append_of_nothing_answers_nothing(self, backend: Backend) -> None:
        assert await backend.streams.events.append([]) == []

    @needs_counts
    async def test_every_field_of_an_event_round_trips(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        event = an_event(
            "order 7/ä", name="placed", payload='{"b": ["ä 🙂 \\" \\u0000"], "a": 1.5}', headers={"trace": "é"}
        )
        await append(backend, event)
        (stored,) = await read(backend)
        assert (stored.id, stored.category, stored.stream, stored.name) == (event.id, CATEGORY, "order 7/ä", "placed")
        assert (stored.payload, stored.headers, stored.recorded_us) == (event.payload, event.headers, clock())
        assert (stored.partition_id, stored.position, stored.version) == (0, 1, 1)

    @needs_store_clock
    async def test_an_event_is_never_recorded_earlier_than_the_one_before_it_in_its_partition(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, "a")
        noted = clock()
        clock.advance(-60)
        await append_to(backend, "b")
        clock.advance(61)
        await append_to(backend, "c")
        assert [event.recorded_us for event in await read(backend)] == [noted, noted, noted + 1_000_000]

    @needs_expected_version
    async def test_if_one_cannot_be_written_none_is(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        with pytest.raises(Exception):  # noqa: B017, PT011 - the driver decides which error invalid text raises
            await backend.streams.events.append([an_event("a"), an_event("b", payload="\ud800")])
        assert await read(backend) == []
        assert [place.position for place in await append(backend, an_event("a"))] == [1]


@needs_counts
class TestRepeats(StreamConformance):
    """An append whose reply was lost can be repeated safely."""

    async def test_an_event_whose_id_is_known_is_answered_with_its_place_and_not_written_again(
        self, backend: Backend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        event = an_event("a")
        (first,) = await append(backend, event)
        await append_to(backend, "a")
        before = await read(backend)
        assert await backend.streams.events.append([event]) == [msgspec.structs.replace(first, is_new=False)]
        assert await read(backend) == before

    async def test_a_known_event_is_left_as_it_is_whatever_the_repeat_says(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        (first,) = await append(backend, an_event("a", payload='"first"'))
        repeat = an_event("b", category="sales", name="other", payload='"second"', event_id=first.id)
        (answer,) = await backend.streams.events.append([repeat])
        assert answer == msgspec.structs.replace(first, is_new=False)
        (stored,) = await read(backend)
        assert (stored.stream, stored.name, stored.payload) == ("a", "placed", '"first"')
        assert await backend.streams.events.stream_version("sales", "b") == 0

    async def test_new_events_in_a_call_with_known_ones_are_written(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        known = an_event("a")
        await append(backend, known)
        answers = await backend.streams.events.append([an_event("a"), known, an_event("a")])
        assert [(each.is_new, each.position, each.version) for each in answers] == [
            (True, 2, 2),
            (False, 1, 1),
            (True, 3, 3),
        ]

    async def test_an_id_twice_in_one_call_is_written_once(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        event = an_event("a")
        answers = await backend.streams.events.append([event, event, an_event("a")])
        assert [(each.is_new, each.position) for each in answers] == [(True, 1), (False, 1), (True, 2)]

    async def test_an_id_that_is_given_again_behind_others_has_the_place_of_its_first(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        event = an_event("a")
        answers = await backend.streams.events.append([event, an_event("b"), event])
        assert [(each.is_new, each.position) for each in answers] == [(True, 1), (True, 2), (False, 1)]

    async def test_concurrent_repeats_of_an_append_write_its_events_once(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        batch = [an_event("a"), an_event("b")]
        answers = await asyncio.gather(*(backend.streams.events.append(batch) for _ in range(8)))
        assert sorted(each.is_new for answer in answers for each in answer) == [False] * 14 + [True] * 2
        assert {(each.id, each.position) for answer in answers for each in answer} == {
            (batch[0].id, 1),
            (batch[1].id, 2),
        }
        assert len(await read(backend)) == 2


@needs_expected_version
class TestExpectedVersion(StreamConformance):
    """`NewEvent.expected_version`: of two writers that decided on the same state, one gets a conflict."""

    async def test_the_version_expected_lets_the_append_through(self, backend: Backend) -> None:
        await append(backend, an_event("a", expected_version=0))
        (place,) = await append(backend, an_event("a", expected_version=1))
        assert place.version == 2

    async def test_the_first_of_several_events_for_a_stream_carries_it_for_all(self, backend: Backend) -> None:
        await append_to(backend, "a")
        places = await append(backend, an_event("a", expected_version=1), an_event("a"), an_event("b"))
        assert [place.version for place in places] == [2, 3, 1]

    async def test_the_version_expected_counts_the_new_events_before_it_in_the_call(self, backend: Backend) -> None:
        first = an_event("a")
        batch = [first, an_event("b"), first, an_event("a", expected_version=1)]
        places = await backend.streams.events.append(batch)
        assert [place.version for place in places] == [1, 1, 1, 2]
        with pytest.raises(VersionConflict) as caught:
            await backend.streams.events.append([first, an_event("a"), an_event("a", expected_version=2)])
        assert (caught.value.expected, caught.value.actual) == (2, 3)
        assert await backend.streams.events.stream_version(CATEGORY, "a") == 2

    @pytest.mark.parametrize("expected", [0, 1, 3, 99])
    async def test_another_version_is_a_conflict_that_names_the_stream_and_both_versions(
        self, backend: Backend, expected: int
    ) -> None:
        await append_to(backend, "a", "a")
        with pytest.raises(VersionConflict) as conflict:
            await backend.streams.events.append([an_event("a", expected_version=expected)])
        error = conflict.value
        assert (error.category, error.stream, error.expected, error.actual) == (CATEGORY, "a", expected, 2)

    async def test_a_stream_that_does_not_exist_is_at_version_0(self, backend: Backend) -> None:
        with pytest.raises(VersionConflict) as conflict:
            await backend.streams.events.append([an_event("a", expected_version=1)])
        assert conflict.value.actual == 0

    async def test_on_a_conflict_nothing_is_written(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, "a")
        before = await read(backend)
        with pytest.raises(VersionConflict):
            await backend.streams.events.append([an_event("b"), an_event("a", expected_version=0), an_event("c")])
        assert await read(backend) == before
        assert [await backend.streams.events.stream_version(CATEGORY, name) for name in "abc"] == [1, 0, 0]
        assert [place.position for place in await append(backend, an_event("b"))] == [2]

    async def test_on_a_conflict_no_category_is_made(self, backend: Backend) -> None:
        with pytest.raises(VersionConflict):
            await backend.streams.events.append([an_event("a", expected_version=1)])
        with pytest.raises(CategoryNotFound):
            await read(backend)

    async def test_a_repeat_of_the_whole_call_succeeds_though_the_version_has_grown(self, backend: Backend) -> None:
        batch = [an_event("a", expected_version=0), an_event("a")]
        first = await append(backend, *batch)
        await append_to(backend, "a")
        again = await backend.streams.events.append(batch)
        assert again == [msgspec.structs.replace(each, is_new=False) for each in first]

    async def test_of_concurrent_appends_that_expect_the_same_version_one_wins(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await append_to(backend, "a")
        clock.advance(SECOND)
        appends = (backend.streams.events.append([an_event("a", expected_version=1)]) for _ in range(8))
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        conflicts = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
        assert (len(conflicts), {conflict.actual for conflict in conflicts}) == (7, {2})
        assert await backend.streams.events.stream_version(CATEGORY, "a") == 2
