"""Retention by bytes, and what is left of jobs that are gone."""

from __future__ import annotations

from datetime import timedelta

from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis.backend import RedisBackend
from holdfast.model.outcome import Completed, Failed, Failure
from holdfast.store.values import Finish, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import MANY, a_job, claim, enqueue
from holdfast.testing.stores import open_store

FOREVER = Retention(completed=timedelta(days=1000), failed=None, cancelled=None)


async def _complete(backend: RedisBackend, clock: ManualClock, count: int, size: int = 300) -> list[str]:
    ids: list[str] = []
    for _ in range(count):
        ids += await enqueue(backend, a_job(payload='"' + "x" * size + '"'))
        (job,) = await claim(backend)
        await backend.jobs.finish([Finish(job.lease, Completed())])
        clock.advance(1)
    return ids


async def test_completed_jobs_beyond_a_number_of_bytes_are_pruned_the_oldest_first(url: str, clock: ManualClock):
    async with open_store(f"{url}&completed_bytes=2000", clock=clock) as backend:
        assert isinstance(backend, RedisBackend)
        ids = await _complete(backend, clock, 9)
        assert await backend.jobs.prune(FOREVER, MANY) == 4
        left = {seen.id for seen in await backend.insight.states(ids)}
        assert left == set(ids[4:])
        assert await backend.jobs.prune(FOREVER, MANY) == 0
        assert int((await backend.insight.facts())["completed_bytes"]) <= 2000
    check_whole(url)


async def test_a_large_payload_which_lies_apart_from_its_record_counts(url: str, clock: ManualClock):
    async with open_store(f"{url}&completed_bytes=20000", clock=clock) as backend:
        assert isinstance(backend, RedisBackend)
        ids = await _complete(backend, clock, 9, size=4700)
        assert await backend.jobs.prune(FOREVER, MANY) == 5
        assert {seen.id for seen in await backend.insight.states(ids)} == set(ids[5:])
    check_whole(url)


async def test_without_a_number_of_bytes_only_age_counts(backend: RedisBackend, clock: ManualClock):
    await _complete(backend, clock, 3)
    assert await backend.jobs.prune(FOREVER, MANY) == 0
    assert await backend.jobs.prune(Retention(completed=timedelta(seconds=2)), MANY) == 2


async def test_nothing_of_a_pruned_job_is_left(backend: RedisBackend, clock: ManualClock, url: str):
    await _complete(backend, clock, 3)
    await enqueue(backend, a_job())
    (job,) = await claim(backend)
    await backend.jobs.finish([Finish(job.lease, Failed(Failure("ValueError", "no")))])
    clock.advance(timedelta(days=365))
    for number in (4, 0, 0):  # the name of the worker is retired, then forgotten
        assert await backend.jobs.prune(Retention(), MANY) == number
    name = backend.url.partition("name=")[2]
    left = {key.rpartition(b":")[2] for key in connection_of(url).scan_iter(match=f"{{holdfast:{name}}}:*")}
    assert left == {b"meta", b"lanes", b"seq", b"fence", b"bytes"}
