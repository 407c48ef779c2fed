"""Records: of several writers that have read the same version, one wins."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

from holdfast.store.backend import Backend
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import Conformance, MakeBackend

KIND = "note"
FOREVER = timedelta(days=10_000)
SECOND = timedelta(seconds=1)


async def put_all(backend: Backend, *names: str, kind: str = KIND) -> None:
    """Insert records in this order."""
    for name in names:
        assert await backend.records.put(kind, name, 0, f"content of {name}")


async def names_of(
    backend: Backend, limit: int = 100, *, after: str | None = None, descending: bool = False
) -> list[str]:
    """Return the names of one page."""
    found = await backend.records.page(KIND, limit, after=after, descending=descending)
    return [record.name for record in found]


class TestRecords(Conformance):
    """`RecordStore`."""

    async def test_a_record_is_inserted_once(self, backend: Backend, clock: ManualClock) -> None:
        assert await backend.records.get(KIND, "one") is None
        assert await backend.records.put(KIND, "one", 0, '{"text": "ünïcode \\" \\\\ 𝛑"}')
        assert not await backend.records.put(KIND, "one", 0, "another")
        found = await backend.records.get(KIND, "one")
        assert found is not None
        assert (found.name, found.version, found.content) == ("one", 1, '{"text": "ünïcode \\" \\\\ 𝛑"}')
        assert (found.touched_at, found.age) == (clock.now, timedelta(0))

    async def test_a_change_names_the_version_that_it_replaces(self, backend: Backend, clock: ManualClock) -> None:
        await put_all(backend, "one")
        clock.advance(SECOND)
        assert await backend.records.put(KIND, "one", 1, "second")
        assert not await backend.records.put(KIND, "one", 1, "too late")
        assert not await backend.records.put(KIND, "one", 3, "too early")
        clock.advance(2 * SECOND)
        found = await backend.records.get(KIND, "one")
        assert found is not None
        assert (found.version, found.content) == (2, "second")
        assert (found.touched_at, found.age) == (clock.now - 2 * SECOND, 2 * SECOND)

    async def test_a_change_with_the_same_content_is_a_change(self, backend: Backend) -> None:
        await put_all(backend, "one")
        assert await backend.records.put(KIND, "one", 1, "content of one")
        assert not await backend.records.put(KIND, "one", 1, "content of one")

    async def test_a_record_that_does_not_exist_is_not_changed(self, backend: Backend) -> None:
        assert not await backend.records.put(KIND, "one", 1, "text")
        assert await backend.records.get(KIND, "one") is None

    async def test_only_the_version_that_was_read_is_deleted(self, backend: Backend) -> None:
        await put_all(backend, "one", "two")
        assert await backend.records.put(KIND, "one", 1, "changed")
        assert not await backend.records.delete(KIND, "one", 1)
        assert not await backend.records.delete(KIND, "one", 0)
        assert await backend.records.delete(KIND, "one", 2)
        assert not await backend.records.delete(KIND, "one", 2)
        assert await names_of(backend) == ["two"]
        assert await backend.records.put(KIND, "one", 0, "inserted again")

    async def test_kinds_do_not_share_names(self, backend: Backend) -> None:
        await put_all(backend, "one")
        await put_all(backend, "one", "two", kind="other")
        assert await backend.records.delete("other", "one", 1)
        assert await names_of(backend) == ["one"]

    async def test_pages_are_in_the_order_of_names(self, backend: Backend) -> None:
        await put_all(backend, "b", "a-b", "C", "aB", "a:b", "a")
        assert await names_of(backend, 4) == ["C", "a", "a-b", "a:b"]
        assert await names_of(backend, after="a:b") == ["aB", "b"]
        assert await names_of(backend, 4, descending=True) == ["b", "aB", "a:b", "a-b"]
        assert await names_of(backend, descending=True, after="a-b") == ["a", "C"]
        assert await names_of(backend, after="b") == []

    async def test_a_page_begins_behind_a_name_that_is_gone(self, backend: Backend) -> None:
        await put_all(backend, "a", "b", "c")
        assert await backend.records.delete(KIND, "b", 1)
        assert await names_of(backend, after="b") == ["c"]
        assert await names_of(backend, after="b", descending=True) == ["a"]

    async def test_old_records_are_pruned(self, backend: Backend, clock: ManualClock) -> None:
        await put_all(backend, "a", "b")
        await put_all(backend, "a", kind="other")
        clock.advance(10 * SECOND)
        await put_all(backend, "c")
        assert await backend.records.prune(KIND, keep=11 * SECOND, most=100, limit=100) == 0
        assert await backend.records.prune(KIND, keep=10 * SECOND, most=100, limit=1) == 1
        assert await names_of(backend) == ["b", "c"]
        assert await backend.records.prune(KIND, keep=10 * SECOND, most=100, limit=100) == 1
        assert await names_of(backend) == ["c"]
        assert len(await backend.records.page("other", 10)) == 1

    async def test_of_too_many_records_the_first_are_pruned(self, backend: Backend) -> None:
        await put_all(backend, "d", "b", "a", "c")
        await put_all(backend, "a", kind="other")
        assert await backend.records.prune(KIND, keep=FOREVER, most=4, limit=100) == 0
        assert await backend.records.prune(KIND, keep=FOREVER, most=2, limit=1) == 1
        assert await backend.records.prune(KIND, keep=FOREVER, most=2, limit=100) == 1
        assert await names_of(backend) == ["c", "d"]
        assert await backend.records.prune(KIND, keep=FOREVER, most=0, limit=100) == 2
        assert await names_of(backend) == []


class TestRacesForRecords(Conformance):
    """Lost races, from several connections."""

    needs: ClassVar[frozenset[str]] = frozenset({"shared"})

    async def test_of_writers_with_the_same_version_one_wins(self, backend: Backend, make_backend: MakeBackend) -> None:
        backends = [backend, *[await make_backend() for _ in range(3)]]
        for version in range(10):
            texts = [f"{version} by {number}" for number in range(8)]
            won = await asyncio.gather(
                *(backends[number % 4].records.put(KIND, "one", version, texts[number]) for number in range(8))
            )
            assert sum(won) == 1
            found = await backend.records.get(KIND, "one")
            assert found is not None
            assert (found.version, found.content) == (version + 1, texts[won.index(True)])

    async def test_every_increment_counts(self, backend: Backend, make_backend: MakeBackend) -> None:
        other = await make_backend()
        assert await backend.records.put(KIND, "sum", 0, "0")

        async def increment(store: Backend) -> None:
            while True:
                found = await store.records.get(KIND, "sum")
                assert found is not None
                if await store.records.put(KIND, "sum", found.version, str(int(found.content) + 1)):
                    return

        await asyncio.gather(*(increment(store) for store in (backend, other) for _ in range(5)))
        found = await backend.records.get(KIND, "sum")
        assert found is not None
        assert (found.content, found.version) == ("10", 11)

    async def test_a_deletion_and_a_change_of_one_version_exclude_each_other(
        self, backend: Backend, make_backend: MakeBackend
    ) -> None:
        other = await make_backend()
        for number in range(10):
            name = f"n{number}"
            await put_all(backend, name)
            changed, deleted = await asyncio.gather(
                backend.records.put(KIND, name, 1, "changed"), other.records.delete(KIND, name, 1)
            )
            assert changed is not deleted
            assert (await backend.records.get(KIND, name) is None) is deleted
