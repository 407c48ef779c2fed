"""Limits per key: a key that a script has marked is looked at, by its verb or by the next one; in short scripts."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.redis.ending import Ends, acting_before, ending_before
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.model.job import JobState
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MANY, a_job, claim, claim_one, enqueue, state_of
from holdfast.testing.conformance.key_limits import EACH, keyed, states

SIZE = 600  # more than one script moves
READY, BLOCKED, RUNNING = JobState.READY, JobState.BLOCKED, JobState.RUNNING


@pytest.mark.parametrize("heir", ["promote", "claim"])
async def test_the_next_verb_admits_what_an_ended_process_has_left(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, url: str, heir: str
):
    await backend.queues.limit(EACH, Limit(running=1))
    first, second, third = await enqueue(backend, keyed(), keyed(), keyed())
    job = await claim_one(backend)
    with monkeypatch.context() as patch:
        ending_before(patch, script="read", number=1)  # the completion is written, and marks the key
        with pytest.raises(Ends):
            await backend.jobs.finish([Finish(job.lease, Completed())])
    check_whole(url)
    assert await states(backend, first, second, third) == [JobState.COMPLETED, BLOCKED, BLOCKED]
    if heir == "promote":
        assert (await backend.jobs.promote(MANY)).next_due is None
    else:
        assert [each.id for each in await claim(backend)] == [second]
    assert await states(backend, second, third) == [READY if heir == "promote" else RUNNING, BLOCKED]
    check_whole(url)


async def test_versions_of_a_key_grow_although_a_failover_has_lost_the_last_ones(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, url: str
):
    client: Any = connection_of(url)
    prefix = f"{{holdfast:{url.rpartition('name=')[2]}}}:"
    seen: list[bytes] = []

    async def note() -> None:
        seen.extend(client.hget(key, "v") for key in client.scan_iter(match=f"{prefix}l\0*"))

    await backend.queues.limit(EACH, Limit(running=1))
    for _ in "ab":
        with monkeypatch.context() as patch:
            acting_before(patch, 1, note, "write")  # the key is marked, and not yet looked at
            await enqueue(backend, keyed())
        client.delete(f"{prefix}marks")
        clock.advance(0.000001)
    assert len(set(seen)) == len(seen) == 2


async def test_jobs_of_a_key_without_a_limit_become_ready_wait_when_it_is_set_and_are_admitted_when_it_is_removed(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, url: str
):
    moves = _moved(monkeypatch)
    await enqueue(backend, *(keyed() for _ in range(SIZE)))
    assert await _counted(backend) == {"ready": SIZE}
    await backend.queues.limit(EACH, Limit(running=2))
    assert await _counted(backend) == {"ready": 2, "blocked": SIZE - 2}
    await backend.queues.limit(EACH, Limit(rate="1/s", burst=3))
    assert await _counted(backend) == {"ready": 3, "blocked": SIZE - 3}
    await backend.queues.limit(EACH, None)
    assert await _counted(backend) == {"ready": SIZE}
    check_whole(url)
    assert max(moves) <= 125


def _moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each write adds how many records it changes."""
    moves = [0]
    call = AsyncWire.call

    async def counting(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        if asked.script.name == "write":
            moves.append(
                sum(isinstance(word, bytes) and word[:1] == b"j" and len(word) == 5 for word in asked.words) // 2
            )
        return await call(wire, asked, store)

    monkeypatch.setattr(AsyncWire, "call", counting)
    return moves


async def _counted(backend: RedisBackend) -> dict[str, int]:
    (queue,) = await backend.insight.queues()
    found = {"ready": queue.ready, "blocked": queue.blocked, "running": queue.running}
    return {state: number for state, number in found.items() if number}


async def test_many_keys_are_filled_by_one_enqueue(backend: RedisBackend, url: str):
    await backend.queues.limit(EACH, Limit(running=1))
    jobs = [keyed(f"key-{number % 400}") for number in range(1200)]
    await enqueue(backend, *jobs)
    assert await _counted(backend) == {"ready": 400, "blocked": 800}
    found = await claim(backend, MANY)
    await backend.jobs.finish([Finish(job.lease, Completed()) for job in found])
    assert await _counted(backend) == {"ready": 400, "blocked": 400}
    check_whole(url)


async def test_nothing_is_left_of_a_key_without_jobs(backend: RedisBackend, clock: ManualClock, url: str):
    await backend.queues.limit(EACH, Limit(running=1, rate="1/s"))
    await enqueue(backend, keyed())
    await backend.jobs.finish([Finish((await claim_one(backend)).lease, Completed())])
    assert _keys_of_limits(url) != []  # its rate has a start to make up for
    clock.advance(timedelta(seconds=1))
    await backend.jobs.promote(MANY)
    assert _keys_of_limits(url) == []


def _keys_of_limits(url: str) -> list[bytes]:
    name = url.rpartition("name=")[2]
    client: Any = connection_of(url)
    found = [key.partition(b"}:")[2] for key in client.scan_iter(match=f"{{holdfast:{name}}}:*", count=10_000)]
    return sorted(key for key in found if key[1:2] == b"\0" or key[:1] == b"y" or key == b"wakes")


async def test_concurrent_verbs_never_admit_more_than_the_limit(backend: RedisBackend, url: str):
    await backend.queues.limit(EACH, Limit(running=3))
    done: list[str] = []
    most = Counter[int]()

    async def work(worker_id: str) -> None:
        while len(done) < 120:
            held = await claim(backend, 2, worker_id=worker_id)
            running = sum(use.running for use in await backend.insight.limits())
            most[running] += 1
            await backend.jobs.finish([Finish(job.lease, Completed()) for job in held])
            done.extend(job.id for job in held)
            await asyncio.sleep(0)

    async def produce() -> None:
        for _ in range(40):
            await enqueue(backend, keyed(), keyed(), keyed())

    await asyncio.gather(produce(), *(work(f"w{number}") for number in range(6)))
    assert len(set(done)) == len(done) == 120
    assert max(most) <= 3
    check_whole(url)


async def test_waiting_jobs_are_not_in_front_of_others(backend: RedisBackend):
    await backend.queues.limit(LimitKey("key", "greet"), Limit(running=1))
    await enqueue(backend, *(keyed() for _ in range(50)))
    (last,) = await enqueue(backend, a_job("mail"))
    first, *rest = await claim(backend, 2)
    assert [job.id for job in rest] == [last]
    assert await state_of(backend, first.id) is RUNNING
