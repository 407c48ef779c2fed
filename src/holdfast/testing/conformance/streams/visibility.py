"""Visibility: positions follow the order of commits, so a reader that keeps its position misses nothing."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, NoReturn

import pytest

from holdfast.model.allocation import Grant, Share
from holdfast.model.event import NewEvent
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import MakeBackend
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    NODE_A,
    StreamConformance,
    an_event,
    append,
    append_to,
    begin_consumer,
    granted,
    needs_counts,
    needs_joins,
    read,
    stream_in,
)

LIMIT = timedelta(seconds=20)


class RolledBackError(Exception):
    """Raised to roll a transaction back."""


def roll_back() -> NoReturn:
    """Roll back the enclosing transaction."""
    raise RolledBackError


async def a_grant(backend: Backend, consumer: str = "writer") -> Grant:
    """Return a grant under which a handler may open transactions; its category is not one under test."""
    await begin_consumer(backend, consumer=consumer, category="ledger")
    return await granted(backend, NODE_A, Share(consumer, "ledger", 0))


async def append_crosswise(backends: Sequence[Backend]) -> None:
    """Append to all partitions from several tasks, each in a different order."""
    await backends[0].streams.events.open_category(CATEGORY, 4)
    names = [stream_in(partition_id, 4) for partition_id in range(4)]
    orders = [names, names[::-1], names[2:] + names[:2], [names[1], names[3], names[0], names[2]]]

    async def write(backend: Backend, order: list[str]) -> None:
        for _ in range(10):
            await append(backend, *map(an_event, order))

    async with asyncio.timeout(50):
        await asyncio.gather(*(write(backend, orders[n % 4]) for n, backend in enumerate(backends)))
    (view,) = await backends[0].streams.events.categories()
    assert view.heads == (len(backends) * 10,) * 4


class TestOrder(StreamConformance):
    """Concurrent appends."""

    @needs_counts
    async def test_concurrent_appends_leave_no_gap_and_no_duplicate(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        hauls = await asyncio.gather(
            *(append(backend, an_event(f"s{n % 3}"), an_event(f"s{n % 5}")) for n in range(20))
        )
        assert sorted(place.position for haul in hauls for place in haul) == list(range(1, 41))
        versions: dict[str, list[int]] = {}
        for event in await read(backend):
            versions.setdefault(event.stream, []).append(event.version)
        assert all(found == list(range(1, len(found) + 1)) for found in versions.values())

    @needs_counts
    async def test_the_events_of_one_append_to_one_partition_lie_together(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        hauls = await asyncio.gather(*(append(backend, *map(an_event, "abc")) for _ in range(10)))
        for haul in hauls:
            first = haul[0].position
            assert [place.position for place in haul] == [first, first + 1, first + 2]

    async def test_appends_to_several_partitions_in_opposite_order_do_not_deadlock(self, backend: Backend) -> None:
        await append_crosswise([backend] * 8)


class TestSharedOrder(StreamConformance):
    """The same with a concurrent reader, through several backends on one store."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_appends_in_opposite_order_through_several_backends_do_not_deadlock(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        others = [await make_backend() for _ in range(3)]
        await append_crosswise([backend, *others])

    async def test_a_reader_that_keeps_its_position_misses_nothing(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        writers = [await make_backend() for _ in range(3)]
        seen: list[int] = []

        async def write(writer: Backend, name: str) -> None:
            for _ in range(20):
                await append(writer, an_event(name), an_event(name))

        async def follow() -> None:
            async with asyncio.timeout(50):
                while len(seen) < 120:
                    events = await backend.streams.events.read(CATEGORY, 0, after=seen[-1] if seen else 0, limit=7)
                    seen.extend(event.position for event in events)
                    await asyncio.sleep(0)

        await asyncio.gather(follow(), *(write(writer, f"s{n}") for n, writer in enumerate(writers)))
        assert seen == list(range(1, 121))


@needs_joins
class TestRollback(StreamConformance):
    """Appends in transactions that are rolled back."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    async def test_appends_that_are_rolled_back_leave_no_gap(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        grant = await a_grant(backend)
        await append_to(backend, "a")
        with pytest.raises(RolledBackError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                assert [place.position for place in await append(backend, an_event("a"), an_event("b"))] == [2, 3]
                raise RolledBackError
        (place,) = await append(backend, an_event("a"))
        assert (place.position, place.version) == (2, 2)
        assert [event.position for event in await read(backend)] == [1, 2]
        assert await backend.streams.events.stream_version(CATEGORY, "b") == 0

    async def test_an_append_that_was_rolled_back_can_be_repeated_under_its_ids(self, backend: Backend) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        grant = await a_grant(backend)
        event = an_event("a", expected_version=0)
        with pytest.raises(RolledBackError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                await append(backend, event)
                raise RolledBackError
        (place,) = await append(backend, event)
        assert place.position == 1

    async def test_a_category_whose_first_append_was_rolled_back_can_be_made_again(self, backend: Backend) -> None:
        grant = await a_grant(backend)
        with pytest.raises(RolledBackError):
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                await append_to(backend, "a", category="brand-new")
                raise RolledBackError
        assert [view.name for view in await backend.streams.events.categories()] == ["ledger"]
        assert (await backend.streams.events.open_category("brand-new", 3)).partitions == 3
        await append_to(backend, "a", category="brand-new")
        assert await backend.streams.events.stream_version("brand-new", "a") == 1


@needs_joins
class TestInFlight(StreamConformance):
    """Appends concurrent with an open transaction."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions", "shared"})

    async def _append_concurrently(
        self, backend: Backend, make_backend: MakeBackend, *, commits: bool
    ) -> list[NewEvent]:
        """Append inside a transaction and, through another backend, concurrently; return both events."""
        writer, reader = await make_backend(), await make_backend()
        inner, outer = an_event("a"), an_event("a")
        grant = await a_grant(backend)
        concurrent: asyncio.Task[object] | None = None
        try:
            async with backend.streams.consumers.begin(grant, limit=LIMIT):
                assert [place.position for place in await append(backend, inner)] == [1]
                concurrent = asyncio.create_task(writer.streams.events.append([outer]))
                done, _ = await asyncio.wait([concurrent], timeout=0.2)
                assert not done, "an append of the same partition did not wait for the one in flight"
                assert await read(reader) == []
                if not commits:
                    roll_back()
        except RolledBackError:
            pass
        assert concurrent is not None
        await concurrent
        return [inner, outer]

    async def test_an_append_waits_for_one_in_flight_to_the_same_partition_and_goes_after_it(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        inner, outer = await self._append_concurrently(backend, make_backend, commits=True)
        assert [(event.position, event.version, event.id) for event in await read(backend)] == [
            (1, 1, inner.id),
            (2, 2, outer.id),
        ]

    async def test_when_the_one_in_flight_is_rolled_back_the_other_takes_its_place(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        _, outer = await self._append_concurrently(backend, make_backend, commits=False)
        assert [(event.position, event.version, event.id) for event in await read(backend)] == [(1, 1, outer.id)]

    async def test_a_transaction_that_began_first_and_appends_last_comes_last(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        """If a transaction locks the whole store when it begins, it comes first: commit order is what counts."""
        await backend.streams.events.open_category(CATEGORY, 1)
        writer = await make_backend()
        grant = await a_grant(backend)
        inner, outer = an_event("a"), an_event("a")
        async with backend.streams.consumers.begin(grant, limit=LIMIT):
            concurrent = asyncio.create_task(writer.streams.events.append([outer]))
            done, _ = await asyncio.wait([concurrent], timeout=0.2)
            await append(backend, inner)
        await concurrent
        assert [event.id for event in await read(backend)] == ([outer.id, inner.id] if done else [inner.id, outer.id])
        assert [event.version for event in await read(backend)] == [1, 2]

    async def test_writers_that_sometimes_roll_back_leave_no_gap_and_a_reader_misses_nothing(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        await backend.streams.events.open_category(CATEGORY, 1)
        grants = [await a_grant(backend, f"writer-{n}") for n in range(3)]
        writers = [await make_backend() for _ in grants]
        writing = set(range(3))
        committed: list[str] = []
        seen: list[tuple[int, str]] = []

        async def write(number: int) -> None:
            for turn in range(12):
                events = [an_event(f"s{number}"), an_event("shared")]
                try:
                    async with writers[number].streams.consumers.begin(grants[number], limit=LIMIT):
                        await append(writers[number], *events)
                        if turn % 3 == number:
                            roll_back()
                except RolledBackError:
                    continue
                committed.extend(event.id for event in events)
            writing.discard(number)

        async def follow() -> None:
            is_last = False
            while not is_last:
                is_last = not writing  # one read after the last commit
                after = seen[-1][0] if seen else 0
                seen.extend((event.position, event.id) for event in await read(backend, after=after))
                await asyncio.sleep(0)

        async with asyncio.timeout(50):
            await asyncio.gather(follow(), *(write(number) for number in range(3)))
        assert [position for position, _ in seen] == list(range(1, len(committed) + 1))
        assert sorted(event_id for _, event_id in seen) == sorted(committed)
