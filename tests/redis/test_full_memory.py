"""Full memory: producers are refused, workers go on; and what a server that evicts keys does to a store."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast import App, Fixed
from holdfast.app.open import open_backend
from holdfast.backends.redis.backend import RedisBackend
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed, Failed
from holdfast.store.values import Finish, Retention, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    FAILURE,
    LEASE,
    MANY,
    OUTCOMES,
    a_job,
    claim,
    enqueue,
    finish,
    in_extender,
)
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store


def _client(url: str) -> Any:
    return connection_of(url)


@pytest.mark.slow
async def test_with_full_memory_producers_are_refused_and_workers_go_on(flavour: Flavour):
    with own_redis(flavour) as server:
        url = f"{server.url}?name={secrets.token_hex(4)}"
        async with open_store(url) as backend:
            ids = await enqueue(backend, *(a_job() for _ in range(20)))
            _client(url).config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable, match="memory is full"):
                await backend.jobs.enqueue([a_job()])
            with pytest.raises(StoreUnavailable, match="memory is full"):  # staged: refused as a whole
                await backend.jobs.enqueue([a_job() for _ in range(1200)])
            held = await claim(backend)
            assert [job.id for job in held] == ids
            done = await backend.jobs.finish([Finish(job.lease, Completed()) for job in held])
            assert done == [Verdict.DONE] * len(ids)
            assert (await backend.jobs.promote(MANY)).moved == 0
            _client(url).config_set("maxmemory", "0")
            await enqueue(backend, a_job())
        check_whole(url)


@pytest.mark.slow
async def test_with_full_memory_leases_are_kept_up_jobs_retried_and_rescued_and_old_ones_deleted(flavour: Flavour):
    clock = ManualClock()
    with own_redis(flavour) as server:
        url = f"{server.url}?name=a"
        async with open_store(url, clock=clock) as backend:
            await enqueue(backend, *(a_job() for _ in range(4)))
            old, retried, lost, held = [job.lease for job in await claim(backend)]
            await finish(backend, old, Completed())
            _client(url).config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable, match="memory is full"):
                await backend.jobs.enqueue([a_job()])
            assert await finish(backend, retried, OUTCOMES["retried"]) is Verdict.DONE
            clock.advance(LEASE * 0.9)
            assert await backend.jobs.extend(held, LEASE) is Verdict.DONE
            assert (await in_extender(backend, lambda extender: extender.extend([held], LEASE))).lost == []
            clock.advance(LEASE * 0.2)
            assert [each.job_id for each in await backend.jobs.rescue(None, MANY)] == [lost.job_id]
            assert (await backend.jobs.promote(MANY)).moved == 1
            assert {job.id for job in await claim(backend)} == {lost.job_id, retried.job_id}
            assert await backend.jobs.prune(Retention(completed=timedelta(seconds=1)), MANY) == 1
            assert await finish(backend, held, Failed(FAILURE)) is Verdict.DONE
            _client(url).config_set("maxmemory", "0")
        check_whole(url)


@pytest.mark.slow
async def test_a_worker_runs_through_a_full_memory_without_a_break(flavour: Flavour):
    with own_redis(flavour) as server:
        app = App(f"{server.url}?name=a")
        attempts: list[int] = []

        @app.task(retry=Fixed(0.05))
        async def flaky(number: int) -> int:
            attempts.append(number)
            if attempts.count(number) == 1:
                raise ValueError(number)
            return number

        async with app:
            jobs = await flaky.enqueue_many([{"number": number} for number in range(50)])
            _client(server.url).config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable, match="memory is full"):
                await flaky.enqueue(50)
            async with app.working(concurrency=4):  # it raises if the worker breaks
                assert await asyncio.gather(*(job.result(timeout=30) for job in jobs)) == list(range(50))
                _client(server.url).config_set("maxmemory", "0")
                assert await (await flaky.enqueue(51)).result(timeout=30) == 51
        assert sorted(attempts) == sorted([*range(50), 51] * 2)
        check_whole(f"{server.url}?name=a")


@pytest.mark.slow
async def test_a_server_that_evicts_keys_is_refused():
    with own_redis("valkey", maxmemory="100mb", maxmemory_policy="allkeys-lru") as server:
        backend = open_backend(f"{server.url}?name=a")
        with pytest.raises(ConfigError, match="noeviction"):
            await backend.open()
        await backend.close()


@pytest.mark.parametrize("is_limited", [False, True])
async def test_jobs_whose_records_were_evicted_do_not_keep_back_others(
    backend: RedisBackend, url: str, is_limited: bool
):
    if is_limited:
        await backend.queues.limit(LimitKey("queue", "default"), Limit(running=5))
    ids = [f"00000000-0000-7000-8000-{number:012x}" for number in range(60)]
    prefix = backend._parts.here.server.location.prefix
    lost = [
        *(a_job(job_id=job_id) for job_id in ids[:40]),
        *(a_job(job_id=job_id, delay=timedelta(seconds=1)) for job_id in ids[40:50]),
        *(msgspec.structs.replace(a_job(job_id=job_id), order_key="k") for job_id in ids[50:]),
    ]
    await backend.jobs.enqueue(lost)
    _client(url).delete(f"{prefix}j".encode() + bytes(4))
    kept = [a_job(delay=timedelta(seconds=1)), msgspec.structs.replace(a_job(), order_key="k"), a_job(), a_job()]
    await backend.jobs.enqueue(kept)
    backend._parts.here.server.clock.advance(2)  # type: ignore[union-attr]
    await backend.jobs.promote(MANY)
    claimed: list[str] = []
    while jobs := await claim(backend, limit=2):
        claimed += [job.id for job in jobs]
        assert await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs]) == [Verdict.DONE] * len(jobs)
    assert sorted(claimed) == sorted(job.id for job in kept)
    assert [queue.ready for queue in await backend.insight.queues()] == [0]
