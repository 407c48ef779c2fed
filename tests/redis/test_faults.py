"""Lost replies, forgotten scripts, an endless one, an emptied server: reported as they are, and over when they end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis
from tests.system.harness import eventually

from holdfast.app.open import open_backend
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.scripts import ENQUEUE, RESERVE_SEQS
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import OutcomeUnknown, SchemaMismatch, StoreUnavailable
from holdfast.model.conditions import Conditions
from holdfast.model.outcome import Completed
from holdfast.store.backend import Backend
from holdfast.store.jobs import Extender
from holdfast.store.values import Finish, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    a_job,
    claim,
    enqueue,
    finish,
    hold_one,
    in_extender,
    state_of,
)
from holdfast.testing.conformance.unique import unique
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store
from holdfast.torture.proxy import Proxy
from holdfast.torture.resp import RespWire


def _client(url: str) -> Any:
    return connection_of(url)


async def test_scripts_that_the_server_has_forgotten_are_loaded_again(backend: RedisBackend, url: str):
    job = await hold_one(backend)
    _client(url).script_flush()
    assert await backend.jobs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
    _client(url).script_flush()
    assert (await in_extender(backend, lambda extender: extender.extend([job.lease], LEASE))).lost == [job.lease]


async def test_connections_that_were_closed_while_idle_are_not_noticed_by_the_next_call(
    backend: RedisBackend, url: str
):
    job = await hold_one(backend)
    client = _client(url)
    for each in client.client_list():
        if each["name"] == f"holdfast.{backend.url.partition('name=')[2]}":
            client.client_kill_filter(_id=each["id"])
    await asyncio.sleep(0.05)  # until the loop has seen the end of the streams
    assert await backend.jobs.extend(job.lease, LEASE) is Verdict.DONE


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url, RespWire())
    yield proxy
    proxy.close()


@pytest.fixture
async def through(proxy: Proxy, url: str, clock: ManualClock) -> AsyncIterator[RedisBackend]:
    """Yield the store through a proxy, by which all scripts of `hold_one` and of an end were loaded."""
    _client(url).script_flush()
    async with open_store(proxy.url, clock=clock) as backend:
        assert isinstance(backend, RedisBackend)
        await finish(backend, (await hold_one(backend, worker_id="worker-b")).lease, Completed())
        yield backend


def _calls(url: str) -> int:
    """Return how many calls of scripts the server has received."""
    return int(_client(url).info("commandstats")["cmdstat_evalsha"]["calls"])


async def test_a_call_whose_reply_is_lost_has_an_unknown_outcome_and_is_not_sent_twice(
    through: RedisBackend, proxy: Proxy, url: str
):
    job = await hold_one(through)
    calls = _calls(url)
    proxy.arm("after", alone=True)
    with pytest.raises(OutcomeUnknown):
        await through.jobs.finish([Finish(job.lease, Completed('"paid"'))])
    assert (proxy.cuts, _calls(url) - calls) == (1, 1)
    assert await through.jobs.finish([Finish(job.lease, Completed('"paid"'))]) == [Verdict.DONE]
    proxy.arm("after", "^EVAL")
    with pytest.raises(StoreUnavailable):  # it only reads
        await through.insight.states([job.id])
    assert [(seen.state, seen.result) for seen in await through.insight.states([job.id])] == [("completed", '"paid"')]


async def test_an_extension_whose_reply_is_lost_is_not_sent_twice(through: RedisBackend, proxy: Proxy, url: str):
    job = await hold_one(through)

    def lose(extender: Extender) -> int:
        for _ in "ab":  # a new connection reads the lanes again
            extender.extend([job.lease], LEASE)
        calls = _calls(url)
        proxy.arm("after", alone=True)
        with pytest.raises(OutcomeUnknown):
            extender.extend([job.lease], LEASE)
        sent = _calls(url) - calls
        assert extender.extend([job.lease], LEASE).lost == []
        return sent

    assert await in_extender(through, lose) == 1


async def test_a_claim_whose_reply_is_lost_is_found_by_its_worker(through: RedisBackend, proxy: Proxy, url: str):
    await enqueue(through, a_job(), a_job())
    calls = _calls(url)
    proxy.arm("after", alone=True)
    with pytest.raises(OutcomeUnknown):
        await claim(through)
    assert _calls(url) - calls == 1
    leases = await through.jobs.unacknowledged_leases("worker-a", 0)
    assert len(leases) == 2
    assert await through.jobs.release(leases, started=False) == [Verdict.DONE] * 2
    assert [job.attempt - job.excused for job in await claim(through)] == [1, 1]


async def test_a_call_that_is_cancelled_leaves_no_reply_for_the_next_one(backend: RedisBackend):
    (job_id,) = await enqueue(backend, a_job())
    for _ in range(20):
        call = asyncio.create_task(backend.insight.queues())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        assert (await backend.insight.job(job_id)).job.id == job_id


async def test_a_store_that_is_emptied_and_installed_again_is_a_new_one(
    backend: RedisBackend, url: str, caplog: pytest.LogCaptureFixture
):
    await enqueue(backend, a_job("first"), a_job("second"))
    client = _client(url)
    name = backend.url.partition("name=")[2]
    client.delete(*client.keys(f"{{holdfast:{name}}}:*"))
    with pytest.raises(SchemaMismatch, match="holdfast schema install"):
        await enqueue(backend, a_job("first"))
    with pytest.raises(SchemaMismatch):
        await claim(backend)
    restarted = open_backend(f"{url}&install=never")
    with pytest.raises(SchemaMismatch):
        await restarted.open()
    await restarted.close()
    async with open_store(url, clock=backend._parts.here.server.clock) as other:
        await enqueue(other, a_job("second"), a_job("third"))
        # The numbers of its lanes are not those that this process knows.
        (job_id,) = await enqueue(backend, a_job("first"))
        found = [job async for job in _all(backend)]
        assert sorted(queue for queue, _ in found) == ["first", "second", "third"]
        assert job_id in {each for _, each in found}
        (error,) = [each for each in caplog.records if each.levelno == logging.ERROR]  # once
        assert "the store is not the one that this process has used until now" in error.message
    check_whole(url)


async def test_a_store_that_is_replaced_in_the_middle_of_a_call_gets_no_number_of_the_old_one(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    await enqueue(backend, a_job("first"), a_job("second"))
    call = AsyncWire.call
    is_replaced = False

    async def replacing(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        nonlocal is_replaced
        if asked.script is ENQUEUE and not is_replaced:
            is_replaced = True
            client, name = _client(url), backend.url.partition("name=")[2]
            client.delete(*client.keys(f"{{holdfast:{name}}}:*"))
            await backend.schema.install()
            async with open_store(url, clock=backend._parts.here.server.clock) as other:
                await enqueue(other, a_job("second"))
            await backend.insight.queues()  # another call of this process has noticed it
        return await call(wire, asked, store)

    monkeypatch.setattr(AsyncWire, "call", replacing)
    (job_id,) = await enqueue(backend, a_job("first"))
    assert (await backend.insight.job(job_id)).job.queue == "first"


@pytest.mark.parametrize("staged", [False, True])
async def test_a_lane_that_the_server_has_lost_is_not_taken_for_another_that_was_added_since(staged: bool):
    with own_redis("valkey") as server:
        url = f"{server.url}?name=a"
        async with open_store(url) as backend, open_store(url) as other:
            await enqueue(backend, a_job("first"))
            _client(url).save()
            await enqueue(backend, a_job("lost"))
            server.kill()  # the same as a failover: the lane, and the job in it, are gone
            server.start()
            await asyncio.sleep(0.05)  # until the loop has seen the end of the streams
            await enqueue(other, a_job("newer"))
            ids = await enqueue(backend, *(a_job("lost") for _ in range(1200 if staged else 1)))
            unique_id = await enqueue(backend, msgspec.structs.replace(unique(), queue="lost"))
            found = {job.id: job.queue for _ in "ab" for job in await claim(backend)}
            assert sorted(queue for job_id, queue in found.items() if job_id not in {*ids, *unique_id}) == [
                "first",
                "newer",
            ]
            assert {found[job_id] for job_id in (*ids, *unique_id)} == {"lost"}
        check_whole(url)


@pytest.mark.parametrize("verb", ["show", "cancel", "extender"])
async def test_a_job_of_a_lane_that_took_the_number_of_a_lost_one_is_that_of_its_queue(verb: str):
    with own_redis("valkey") as server:
        url = f"{server.url}?name=a"
        async with open_store(url) as backend, open_store(url) as other:
            await enqueue(backend, a_job("first"))
            _client(url).save()
            await enqueue(backend, a_job("lost"))
            server.kill()
            server.start()
            await asyncio.sleep(0.05)  # until the loops have seen the end of the streams
            head, job_id = await enqueue(other, *(msgspec.structs.replace(a_job("newer"), order_key="k") for _ in "ab"))
            held = {job.id: job for job in await claim(other)}[head]
            if verb == "show":
                assert (await backend.insight.job(job_id)).job.queue == "newer"
            elif verb == "cancel":
                assert await backend.jobs.cancel(job_id, "no") == "cancelled"
            else:
                await in_extender(backend, lambda extender: extender.extend([held.lease], LEASE))
                assert (await backend.insight.job(job_id)).job.queue == "newer"
        check_whole(url)


async def test_seqs_that_a_failover_has_given_to_others_are_not_used(
    backend: RedisBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    first, (name,) = a_job(), re.findall("name=(.*)", backend.url)
    await enqueue(backend, first)
    call = AsyncWire.call
    is_lost = False

    async def losing(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        nonlocal is_lost
        reply = await call(wire, asked, store)
        if asked.script is RESERVE_SEQS and not is_lost:
            is_lost = True
            _client(url).decrby(f"{{holdfast:{name}}}:seq", asked.words[0])
            await enqueue(backend, a_job())
        return reply

    monkeypatch.setattr(AsyncWire, "call", losing)
    await enqueue(backend, *(msgspec.structs.replace(a_job(), conditions=Conditions(after=(first.id,))) for _ in "ab"))
    assert is_lost
    check_whole(url)


async def _all(backend: RedisBackend):
    for job in await claim(backend):
        yield job.queue, job.id


async def test_fences_grow_although_a_failover_has_lost_the_last_ones(backend: RedisBackend, url: str):
    job = await hold_one(backend)
    client = _client(url)
    name = backend.url.partition("name=")[2]
    client.delete(f"{{holdfast:{name}}}:fence")
    backend._parts.here.server.clock.advance(0.000001)  # type: ignore[union-attr]
    assert await backend.jobs.reset(job.id)
    (again,) = await claim(backend)
    assert again.fence > job.fence


async def test_a_clock_that_is_set_back_does_not_set_fences_back(backend: RedisBackend):
    job = await hold_one(backend)
    backend._parts.here.server.clock.advance(timedelta(days=-1))  # type: ignore[union-attr]
    assert await backend.jobs.reset(job.id)
    (again,) = await claim(backend)
    assert again.fence > job.fence


@pytest.mark.slow
async def test_an_endless_script_of_another_program_is_an_outage_until_it_ends(flavour: Flavour):
    with own_redis(flavour, busy_reply_threshold="100") as server:
        async with open_store(f"{server.url}?name=a") as backend:
            (job_id,) = await enqueue(backend, a_job())
            endless = asyncio.create_task(asyncio.to_thread(_run_endlessly, server.url, "while true do end"))
            with pytest.raises(StoreUnavailable, match="SCRIPT KILL"):
                await _look_until_it_fails(backend, job_id)
            _client(server.url).script_kill()
            await endless
            assert await state_of(backend, job_id) == "ready"


@pytest.mark.slow
async def test_an_endless_script_that_has_written_ends_with_its_server_and_nothing_was_enqueued_meanwhile(
    flavour: Flavour,
):
    with own_redis(flavour, busy_reply_threshold="100", sync="always") as server:
        url = f"{server.url}?name=a"
        async with open_store(url) as backend:
            (job_id,) = await enqueue(backend, a_job())
            script = "redis.call('SET', 'theirs', 1) while true do end"
            endless = asyncio.create_task(asyncio.to_thread(_run_endlessly, server.url, script))
            with pytest.raises(StoreUnavailable, match="SCRIPT KILL"):
                await _look_until_it_fails(backend, job_id)
            refused = a_job()
            with pytest.raises(StoreUnavailable, match="or the server if it has written"):
                await backend.jobs.enqueue([refused])
            with pytest.raises(ResponseError, match="UNKILLABLE"):
                _client(server.url).script_kill()
            server.kill()
            await endless
            server.start()
            assert [job.id for job in await claim(backend)] == [job_id]
            assert await backend.jobs.enqueue([refused]) == [True]
        check_whole(url)


async def _look_until_it_fails(backend: Backend, job_id: str) -> None:
    while True:
        await state_of(backend, job_id)
        await asyncio.sleep(0.02)


def _run_endlessly(url: str, script: str) -> None:
    client = Redis.from_url(url, retry=None)
    with pytest.raises((ResponseError, RedisConnectionError)):
        client.eval(script, 0)
    client.close()


@pytest.mark.slow
async def test_a_server_that_was_away_is_found_again_and_has_what_it_acknowledged():
    with own_redis("valkey", sync="always") as server:
        url = f"{server.url}?name=a"
        async with open_store(url) as backend:
            job = await hold_one(backend)
            server.kill()
            with pytest.raises((StoreUnavailable, OutcomeUnknown)):
                await backend.jobs.enqueue([a_job()])
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await backend.jobs.enqueue([a_job()])
            server.start()
            assert await backend.jobs.finish([Finish(job.lease, Completed())]) == [Verdict.DONE]
            await enqueue(backend, a_job())
        check_whole(url)


@pytest.mark.slow
async def test_what_was_acknowledged_and_is_written_survives_a_kill_of_a_server_that_syncs_every_second():
    with own_redis("valkey", sync="everysec") as server:
        url = f"{server.url}?name=a&durability=1s"
        async with open_store(url) as backend:
            for _ in range(20):
                await backend.jobs.enqueue([a_job() for _ in range(20)])
            held = await claim(backend, limit=100)
            verdicts = await backend.jobs.finish([Finish(job.lease, Completed()) for job in held])
            assert verdicts == [Verdict.DONE] * 100
            eventually(lambda: not _client(url).info("persistence")["aof_buffer_length"], "all is written")
            server.kill()
            server.start()
        async with open_store(url) as backend:
            left = await backend.jobs.outstanding(["greet"], ["default"])
            assert left.ready == 300
        check_whole(url)
