"""Levels of durability: what the server must be set to, and enqueues that wait for replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from tests.redis.replicas import Pair, pair, until
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from holdfast.model.job import LeasedJob, NewJob
from holdfast.store.values import Standing
from holdfast.testing.conformance.base import LEASE, a_job, claim
from holdfast.testing.conformance.unique import unique
from holdfast.testing.redis_server import RedisServer, Sync
from holdfast.testing.stores import open_store

SECOND = pytest.param("redis", marks=pytest.mark.slow)


async def _opened(url: str) -> str:
    backend = open_backend(url)
    try:
        await backend.open()
        return backend.capabilities.durability
    finally:
        await backend.close()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with own_redis("valkey") as server:
        yield server


def _set(server: RedisServer, sync: Sync, on_rewrite: str = "no") -> str:
    client = connection_of(server.url)
    client.config_set("appendonly", "no" if sync == "none" else "yes")
    client.config_set("appendfsync", "everysec" if sync == "none" else sync)
    client.config_set("no-appendfsync-on-rewrite", on_rewrite)
    return f"{server.url}?name=a"


@pytest.mark.parametrize(
    ("sync", "level"),
    [("none", "volatile"), ("everysec", "volatile"), ("everysec", "1s"), ("always", "1s"), ("always", "fsync")],
)
async def test_a_level_that_the_server_gives_is_accepted_without_a_word(
    server: RedisServer, sync: Sync, level: str, caplog: pytest.LogCaptureFixture
):
    await _opened(f"{_set(server, sync)}&durability={level}")
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("sync", "level", "remedy"),
    [
        ("none", "1s", "set appendonly yes, appendfsync everysec .*durability=volatile"),
        ("none", "fsync", "set appendonly yes, appendfsync always .*durability=volatile"),
        ("everysec", "fsync", "appendfsync always .*durability=1s"),
    ],
)
async def test_a_level_that_the_server_does_not_give_is_refused_with_the_remedy(
    server: RedisServer, sync: Sync, level: str, remedy: str
):
    with pytest.raises(ConfigError, match=remedy):
        await _opened(f"{_set(server, sync)}&durability={level}")


async def test_a_file_that_is_not_synced_while_it_is_rewritten_does_not_count(server: RedisServer):
    url = _set(server, "always", on_rewrite="yes")
    with pytest.raises(ConfigError, match="no-appendfsync-on-rewrite no"):
        await _opened(f"{url}&durability=fsync")


async def test_without_a_level_a_server_that_keeps_nothing_is_accepted_with_a_warning(
    server: RedisServer, caplog: pytest.LogCaptureFixture
):
    assert "none" in await _opened(_set(server, "none"))
    assert "durability=volatile" in caplog.text
    caplog.clear()
    assert "every second" in await _opened(_set(server, "everysec"))
    assert caplog.text == ""


async def test_where_the_settings_may_not_be_read_a_level_is_accepted_with_a_warning(
    server: RedisServer, caplog: pytest.LogCaptureFixture
):
    url = _set(server, "always")
    connection_of(server.url).acl_setuser("blind", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
    blind = url.replace("redis://", "redis://blind:x@")
    await _opened(f"{blind}&durability=fsync")
    assert "CONFIG GET is not allowed" in caplog.text
    connection_of(server.url).config_set("appendonly", "no")
    with pytest.raises(ConfigError, match="gives volatile"):  # INFO says so
        await _opened(f"{blind}&durability=fsync")


@pytest.mark.slow
async def test_a_server_that_loads_its_file_is_unavailable_and_not_one_without_a_file(caplog: pytest.LogCaptureFixture):
    slowly = {"key_load_delay": "300"}
    with own_redis("valkey", sync="always", **slowly) as server:
        with connection_of(server.url).pipeline(transaction=False) as pipeline:
            for number in range(8000):
                pipeline.set(f"key {number}", "x" * 50)
            pipeline.execute()
        server.kill()
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        refusals: set[str] = set()
        while not starting.done():
            try:
                await _opened(f"{server.url}?name=a&durability=fsync")
            except StoreUnavailable as error:
                refusals.add(str(error))
            await asyncio.sleep(0.01)
        await starting
        assert any("it is loading its dataset" in text for text in refusals)
        assert "synced before each reply" in await _opened(f"{server.url}?name=a&durability=fsync")
        assert caplog.text == ""


# --- replicas ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["valkey", SECOND])
def servers(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair(request.param) as both:
        yield both


async def test_a_primary_that_keeps_nothing_is_accepted_with_its_replicas_if_the_url_says_so(
    servers: Pair, caplog: pytest.LogCaptureFixture
):
    until(servers.is_replicated)
    await _opened(servers.url("durability=replicated"))
    assert "durability=volatile&replicas=1" in caplog.text
    caplog.clear()
    await _opened(servers.url("durability=volatile", "replicas=1"))
    assert caplog.text == ""


@pytest.fixture
def url(servers: Pair) -> Iterator[str]:
    until(servers.is_replicated)
    yield servers.url("durability=replicated", "replica_timeout=0.1")
    servers.replica.resume()
    servers.client().flushall()


def _plain() -> list[NewJob]:
    return [a_job(), a_job()]


def _unique() -> list[NewJob]:
    return [unique("first"), a_job()]


def _staged() -> list[NewJob]:
    return [a_job() for _ in range(1200)]


def _staged_unique() -> list[NewJob]:
    return [unique(f"number {number}") for number in range(600)]


@pytest.mark.parametrize("jobs_of", [_plain, _unique, _staged, _staged_unique])
async def test_an_enqueue_is_acknowledged_when_a_replica_has_it(url: str, servers: Pair, jobs_of):
    jobs = jobs_of()
    async with open_store(url) as backend:
        assert await backend.jobs.enqueue(jobs) == [True] * len(jobs)
        replica = connection_of(servers.replica.url)
        assert sum(replica.hlen(key) for key in replica.scan_iter(match="{holdfast:pair}:j*")) >= len(jobs)
    check_whole(url)


@pytest.mark.parametrize("jobs_of", [_plain, _unique, _staged, _staged_unique])
async def test_without_a_replica_in_time_the_outcome_is_unknown_also_of_a_repeat(url: str, servers: Pair, jobs_of):
    jobs = jobs_of()
    async with open_store(url) as backend, open_store(url) as other:
        servers.replica.freeze()
        for store in (backend, backend, other):  # the repeats find the jobs, and write none; the last connects first
            with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
                await store.jobs.enqueue(jobs)
        servers.replica.resume()
        until(servers.is_replicated)
        assert await backend.jobs.enqueue(jobs) == [False] * len(jobs)
    check_whole(url)


async def test_a_job_that_another_producer_may_lose_is_no_answer_to_a_unique_enqueue(url: str, servers: Pair):
    async with open_store(url) as backend, open_store(url) as other:
        servers.replica.freeze()
        first = unique("once")
        with pytest.raises(OutcomeUnknown):
            await backend.jobs.enqueue([first])
        with pytest.raises(OutcomeUnknown):
            await other.jobs.enqueue([unique("once")])
        servers.replica.resume()
        until(servers.is_replicated)
        assert await other.jobs.enqueue([unique("once")]) == [first.id]


async def test_workers_do_not_wait_for_replicas(url: str, servers: Pair):
    async with open_store(url) as backend:
        await backend.jobs.enqueue([a_job()])
        servers.replica.freeze()
        assert len(await claim(backend)) == 1


@pytest.mark.parametrize("blocking", [False, True])
async def test_an_effect_waits_for_replicas(url: str, servers: Pair, blocking: bool):
    async with open_store(url) as backend:
        await backend.jobs.enqueue([a_job(), a_job()])
        first, second = await claim(backend)

        def act(job: LeasedJob) -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LEASE) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("total"))
                transaction.complete(job.lease, None)

        async def write(job: LeasedJob) -> None:
            if blocking:
                await asyncio.to_thread(act, job)
                return
            async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("total"))
                await transaction.complete(job.lease, None)

        await write(first)
        assert connection_of(servers.replica.url).get("{holdfast:pair}/total") == b"1"
        servers.replica.freeze()
        with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
            await write(second)
        assert await backend.jobs.verify(second.lease) is Standing.COMPLETED


async def test_a_caller_gets_the_ids_of_an_enqueue_of_unknown_outcome_and_repeats_it(url: str, servers: Pair):
    async with App(url) as app:

        @app.task
        async def greet() -> None: ...

        servers.replica.freeze()
        with pytest.raises(OutcomeUnknown) as unknown:
            await greet.enqueue()
        servers.replica.resume()
        until(servers.is_replicated)
        (job_id,) = unknown.value.job_ids
        job = await greet.options(job_id=job_id).enqueue()
        assert job.id == job_id


async def test_a_store_opens_without_its_replicas_with_a_warning(server: RedisServer, caplog: pytest.LogCaptureFixture):
    url = f"{_set(server, 'none')}&durability=replicated&replicas=2&replica_timeout=0.01"
    async with open_store(url) as backend:
        assert "0 of 2 replicas are connected" in caplog.text
        with pytest.raises(OutcomeUnknown, match="0 of 2 replicas"):
            await backend.jobs.enqueue([a_job()])
        assert len(await claim(backend)) == 1
