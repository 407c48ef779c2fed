"""Read: the events of a partition and of a stream, in order."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import CategoryNotFound
from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    MANY,
    SECOND,
    StreamConformance,
    append_to,
    needs_one_stream,
    needs_store_clock,
    read,
    stream_in,
)


class TestPartition(StreamConformance):
    """`EventStore.read`."""

    async def test_events_of_a_partition_come_in_the_order_of_positions(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        ids = await append_to(backend, "a", "b", "a", "c")
        events = await read(backend)
        assert [event.id for event in events] == ids
        assert [event.position for event in events] == [1, 2, 3, 4]

    async def test_it_begins_past_after_and_returns_at_most_limit(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, *"abcdef")
        events = await backend.streams.events.read(CATEGORY, 0, after=2, limit=3)
        assert [event.position for event in events] == [3, 4, 5]
        assert await backend.streams.events.read(CATEGORY, 0, after=6, limit=3) == []
        assert await backend.streams.events.read(CATEGORY, 0, after=99, limit=3) == []

    async def test_a_partition_has_its_own_events_alone(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        await backend.streams.events.open_category("sales", 2)
        low, high = stream_in(0, 2), stream_in(1, 2)
        await append_to(backend, low, high, low)
        await append_to(backend, low, category="sales")
        assert [event.stream for event in await read(backend, partition_id=0)] == [low, low]
        assert [event.stream for event in await read(backend, partition_id=1)] == [high]

    async def test_a_partition_that_the_category_has_not_is_empty(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 2)
        assert await read(backend, partition_id=2) == []

    async def test_a_category_that_does_not_exist_is_not_found(self, backend: Backend) -> None:
        with pytest.raises(CategoryNotFound):
            await read(backend, "nowhere")

    @needs_store_clock
    async def test_what_was_trimmed_is_passed_over(self, backend: Backend, clock: ManualClock) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        await append_to(backend, *"ab")
        clock.advance(60)
        await append_to(backend, *"cd")
        assert await backend.streams.events.trim(CATEGORY, older_than=SECOND, limit=MANY) == 2
        assert [event.position for event in await read(backend)] == [3, 4]
        assert [event.position for event in await read(backend, after=1)] == [3, 4]


@needs_one_stream
class TestStream(StreamConformance):
    """`EventStore.read_stream` and `stream_version`."""

    async def _versions(self, backend: Backend, *, after: int | None, limit: int, backwards: bool) -> list[int]:
        events = await backend.streams.events.read_stream(CATEGORY, "a", after=after, limit=limit, backwards=backwards)
        assert {event.stream for event in events} <= {"a"}
        return [event.version for event in events]

    @pytest.mark.parametrize(
        ("after", "limit", "backwards", "expected"),
        [
            (None, 9, False, [1, 2, 3, 4, 5]),
            (None, 2, False, [1, 2]),
            (0, 2, False, [1, 2]),
            (3, 9, False, [4, 5]),
            (5, 9, False, []),
            (None, 9, True, [5, 4, 3, 2, 1]),
            (None, 2, True, [5, 4]),
            (3, 9, True, [2, 1]),
            (3, 1, True, [2]),
            (1, 9, True, []),
        ],
    )
    async def test_events_of_a_stream_come_past_a_version_forwards_or_backwards(
        self, backend: Backend, after: int | None, limit: int, backwards: bool, expected: list[int]
    ) -> None:
        await append_to(backend, *"abaabaacb")
        assert await self._versions(backend, after=after, limit=limit, backwards=backwards) == expected

    async def test_a_stream_has_its_own_events_alone(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        ids = await append_to(backend, *"aba")
        await append_to(backend, "a", category="sales")
        events = await backend.streams.events.read_stream(CATEGORY, "a", limit=MANY)
        assert [event.id for event in events] == [ids[0], ids[2]]

    @pytest.mark.parametrize("backwards", [False, True])
    async def test_a_stream_that_does_not_exist_is_empty(self, backend: Backend, backwards: bool) -> None:
        events = backend.streams.events
        assert await events.read_stream("nowhere", "a", limit=9, backwards=backwards) == []
        await append_to(backend, "a")
        assert await events.read_stream(CATEGORY, "b", limit=9, backwards=backwards) == []

    async def test_the_version_of_a_stream_is_that_of_its_last_event(self, backend: Backend) -> None:
        assert await backend.streams.events.stream_version(CATEGORY, "a") == 0
        await append_to(backend, *"aba")
        assert [await backend.streams.events.stream_version(CATEGORY, name) for name in "abc"] == [2, 1, 0]


@needs_store_clock
class TestPositionAt(StreamConformance):
    """`EventStore.position_at`."""

    async def test_it_lies_before_the_first_event_recorded_at_or_after_the_instant(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        start = clock.now
        for name in "abc":  # two events at each of 0, 10 and 20 seconds
            await append_to(backend, name, name)
            clock.advance(10)
        found = [
            await backend.streams.events.position_at(CATEGORY, 0, start + timedelta(seconds=seconds))
            for seconds in (-1, 0, 5, 10, 15, 20, 21)
        ]
        assert found == [0, 0, 2, 2, 4, 4, 6]

    async def test_of_a_partition_without_events_it_is_the_beginning(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        assert await backend.streams.events.position_at(CATEGORY, 0, clock.now) == 0

    async def test_before_all_that_is_kept_it_is_the_end_of_what_was_trimmed(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        start = clock.now
        await append_to(backend, *"ab")
        clock.advance(60)
        await append_to(backend, *"cd")
        await backend.streams.events.trim(CATEGORY, older_than=SECOND, limit=MANY)
        assert await backend.streams.events.position_at(CATEGORY, 0, start) == 2
        assert await backend.streams.events.position_at(CATEGORY, 0, start + timedelta(hours=1)) == 4

    async def test_a_category_that_does_not_exist_is_not_found(self, backend: Backend, clock: ManualClock) -> None:
        with pytest.raises(CategoryNotFound):
            await backend.streams.events.position_at("nowhere", 0, clock.now)
