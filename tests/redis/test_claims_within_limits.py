"""Claims within limits choose first and claim then; others claim at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.redis.ending import acting_before
from tests.redis.whole import check_whole

from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import a_job, claim, claim_one, enqueue
from holdfast.testing.stores import open_store

QUEUE = LimitKey("queue", "default")


async def test_a_claim_gets_jobs_although_another_is_faster_each_time(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    await backend.queues.limit(QUEUE, Limit(running=90))
    await backend.jobs.enqueue([a_job() for _ in range(90)])
    taken: list[str] = []
    call = AsyncWire.call

    async with open_store(url) as other:

        async def overtaken(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
            if asked.script.name == "claim" and asked.words[1] == "worker-a":
                taken.extend(job.id for job in await claim(other, worker_id="worker-b", limit=2))
            return await call(wire, asked, store)

        monkeypatch.setattr(AsyncWire, "call", overtaken)
        jobs = await claim(backend, worker_id="worker-a", limit=2)
    assert len(jobs) == 2
    assert not {job.id for job in jobs} & set(taken)
    check_whole(url)


async def test_many_workers_drain_within_a_limit_and_each_job_is_claimed_once(url: str):
    async with open_store(url) as backend:
        await backend.queues.limit(QUEUE, Limit(running=30))
        await backend.jobs.enqueue([a_job() for _ in range(120)])
        claimed: list[str] = []

        async def work(number: int) -> None:
            while jobs := await claim(backend, worker_id=f"worker-{number}", limit=5):
                assert sum(queue.running for queue in await backend.insight.queues()) <= 30
                claimed.extend(job.id for job in jobs)
                await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])

        await asyncio.gather(*map(work, range(6)))
    assert len(claimed) == len(set(claimed)) == 120


async def test_a_claim_decides_and_claims_under_one_state_of_the_limits(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    """Another coroutine of the process reads a newer limit between the choice and the claim."""
    await backend.queues.limit(QUEUE, Limit(running=5))
    await backend.jobs.enqueue([a_job() for _ in range(5)])

    async def lower() -> None:
        async with open_store(url) as other:
            await other.queues.limit(QUEUE, Limit(running=1))
        await backend.insight.queues()

    with monkeypatch.context() as patch:
        acting_before(patch, 1, lower, "front")
        assert len(await claim(backend, limit=5)) == 1


@pytest.mark.parametrize("limit", [Limit(running=1), Limit(rate="1/s", burst=1)])
async def test_a_job_that_comes_while_a_claim_finds_none_waits_for_its_limit(
    backend: RedisBackend, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, limit: Limit
):
    await backend.queues.limit(QUEUE, limit)
    await enqueue(backend, a_job())
    await claim_one(backend)

    async def come() -> None:
        async with open_store(url, clock=clock) as other:
            await enqueue(other, a_job(), a_job())

    with monkeypatch.context() as patch:
        acting_before(patch, 1, come, "claim")
        assert await claim(backend) == []
    assert await claim(backend) == []
    check_whole(url)


@pytest.mark.parametrize("number", [1, 2])
async def test_counts_are_of_all_lanes_although_one_is_added_while_they_are_read(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch, number: int
):
    await backend.jobs.enqueue([a_job("first")])

    async def add() -> None:
        async with open_store(url) as other:
            await other.jobs.enqueue([a_job("second")])
        await backend.jobs.enqueue([a_job("second")])

    with monkeypatch.context() as patch:
        acting_before(patch, number, add, "read")
        found = {queue.name: queue.ready for queue in await backend.insight.queues()}
    assert found in ({"first": 1}, {"first": 1, "second": 2})
