from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.jobs.enqueue_batcher import MAX_BATCH, EnqueueBatcher
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, NewJob
from holdfast.testing.stores import open_store


def new_job() -> NewJob:
    return NewJob(new_id(), "default", "greet", "[[],{}]")


class Watched:
    """A real store whose calls are counted, and can be made to wait or to fail."""

    def __init__(self, backend):
        self.backend = backend
        self.jobs = self
        self._store = backend.jobs
        self.sizes: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def enqueue(self, jobs):
        self.sizes.append(len(jobs))
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return await self._store.enqueue(jobs)


@pytest.fixture
async def store():
    async with open_store("sqlite://") as backend:
        yield Watched(backend)


async def let_run(store: Watched, count: int) -> None:
    """Give every caller its first step; they then wait for the store or for one another."""
    for _ in range(count + 2):
        await asyncio.sleep(0)


def test_an_event_loop_in_which_enqueues_were_joined_is_not_kept_alive():
    class Quick:
        @property
        def jobs(self):
            return self

        async def enqueue(self, jobs):
            await asyncio.sleep(0)
            return [True for _ in jobs]

    batcher = EnqueueBatcher()
    quick: Any = Quick()

    async def enqueue_at_once() -> None:
        await asyncio.gather(*[batcher.enqueue(quick, [new_job()]) for _ in range(3)])

    for _ in range(3):
        asyncio.run(enqueue_at_once())
    gc.collect()

    assert len(batcher._queues) == 0


async def test_a_lone_enqueue_goes_straight_to_the_store(store):
    batcher = EnqueueBatcher()

    assert await batcher.enqueue(store, [new_job()]) == [True]
    assert await batcher.enqueue(store, [new_job()]) == [True]
    assert store.sizes == [1, 1]


async def test_what_comes_while_a_call_is_under_way_goes_together_in_the_next(store):
    batcher = EnqueueBatcher()
    store.open.clear()
    jobs = [new_job() for _ in range(100)]
    calls = [asyncio.create_task(batcher.enqueue(store, [job])) for job in jobs]
    await let_run(store, len(calls))
    store.open.set()

    assert await asyncio.gather(*calls) == [[True]] * 100
    assert store.sizes == [1, 99]
    for job in jobs:
        assert (await store.backend.insight.job(job.id)).job.state is JobState.READY


async def test_each_caller_gets_its_own_answer(store):
    batcher = EnqueueBatcher()
    known, fresh = new_job(), new_job()
    await batcher.enqueue(store, [known])
    store.open.clear()
    first = asyncio.create_task(batcher.enqueue(store, [new_job()]))
    repeat = asyncio.create_task(batcher.enqueue(store, [known]))
    several = asyncio.create_task(batcher.enqueue(store, [fresh, known, new_job()]))
    await let_run(store, 3)
    store.open.set()

    assert list(await asyncio.gather(first, repeat, several)) == [[True], [False], [True, False, True]]


async def test_an_unavailable_store_is_reported_to_all_waiting_callers(store):
    batcher = EnqueueBatcher()
    store.open.clear()
    calls = [asyncio.create_task(batcher.enqueue(store, [new_job()])) for _ in range(3)]
    await let_run(store, 3)
    store.error = StoreUnavailable("away")
    store.open.set()

    assert [type(answer) for answer in await asyncio.gather(*calls, return_exceptions=True)] == [StoreUnavailable] * 3
    store.error = None
    assert await batcher.enqueue(store, [new_job()]) == [True]


async def test_a_cancelled_caller_holds_nobody_up(store):
    batcher = EnqueueBatcher()
    store.open.clear()
    first = asyncio.create_task(batcher.enqueue(store, [new_job()]))
    second = asyncio.create_task(batcher.enqueue(store, [new_job()]))
    third = asyncio.create_task(batcher.enqueue(store, [new_job()]))
    await let_run(store, 3)
    first.cancel()
    second.cancel()
    await let_run(store, 3)
    store.open.set()

    assert await third == [True]
    assert await batcher.enqueue(store, [new_job()]) == [True]


async def test_a_batch_stays_within_its_bound(store):
    batcher = EnqueueBatcher()
    store.open.clear()
    calls = [asyncio.create_task(batcher.enqueue(store, [new_job() for _ in range(400)])) for _ in range(6)]
    await let_run(store, 6)
    store.open.set()

    assert [len(answer) for answer in await asyncio.gather(*calls)] == [400] * 6
    assert max(store.sizes) <= MAX_BATCH
