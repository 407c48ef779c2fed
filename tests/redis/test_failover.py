"""A replica takes the place of its primary: what is lost, with and without a wait for it, and what never happens."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

import pytest
from tests.redis.failovers import WITH, WITHOUT, fail_over
from tests.redis.replicas import Pair, pair, until
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.backends.redis.location import Address
from holdfast.backends.redis.primary import connect_blocking
from holdfast.backends.redis.scripts import STAGE
from holdfast.backends.redis.steps import ScriptCall
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.reports.doctor import examine
from holdfast.reports.finding import FindingLevel
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, in_extender, state_of
from holdfast.testing.conformance.notify import waker
from holdfast.testing.redis_server import Flavour, Sync
from holdfast.testing.stores import open_store

BAD, OK = FindingLevel.BAD, FindingLevel.OK
SECOND = pytest.param("redis", marks=pytest.mark.slow)
each_flavour = pytest.mark.parametrize("flavour", ["valkey", SECOND])
EACH = 15  # jobs before and after the line to the replica is cut
REPLICATED = ("durability=replicated", "replica_timeout=1")


class Sent(NamedTuple):
    """The ids of jobs that were acknowledged, and of those with an unknown outcome."""

    acknowledged: list[str]
    unknown: list[str]


async def _enqueue_across_a_cut(both: Pair, *settings: str) -> Sent:
    sent = Sent([], [])
    await _enqueue(sent, both.url(*settings, "replica_timeout=20"))  # a replica on a busy machine may be slow
    both.cut()
    await _enqueue(sent, both.url(*settings, "replica_timeout=0.02"))
    return sent


async def _enqueue(sent: Sent, url: str) -> None:
    async with open_store(url) as backend:
        for job in [a_job() for _ in range(EACH)]:
            try:
                await backend.jobs.enqueue([job])
            except OutcomeUnknown:
                sent.unknown.append(job.id)
            else:
                sent.acknowledged.append(job.id)


async def _lost(both: Pair, ids: list[str]) -> int:
    async with open_store(both.replica_url) as backend:
        return len(set(ids) - {seen.id for seen in await backend.insight.states(ids)})


@pytest.mark.slow
@each_flavour
async def test_what_was_acknowledged_without_a_wait_is_lost_by_a_failover(flavour: Flavour):
    with pair(flavour) as both:
        sent = await _enqueue_across_a_cut(both)
        both.fail_over()
        assert (len(sent.acknowledged), len(sent.unknown)) == (2 * EACH, 0)
        assert await _lost(both, sent.acknowledged) == EACH
        check_whole(both.replica_url)


@each_flavour
async def test_nothing_that_was_acknowledged_after_a_wait_is_lost_by_a_failover(flavour: Flavour):
    with pair(flavour) as both:
        sent = await _enqueue_across_a_cut(both, "durability=replicated")
        both.fail_over()
        assert (len(sent.acknowledged), len(sent.unknown)) == (EACH, EACH)
        assert await _lost(both, sent.acknowledged) == 0
        assert await _lost(both, sent.unknown) == EACH


@each_flavour
@pytest.mark.parametrize(
    ("sync", "verdict", "kept"), [("none", BAD, 0), pytest.param("always", OK, EACH, marks=pytest.mark.slow)]
)
async def test_a_primary_that_restarts_in_place_keeps_only_what_its_own_file_has(
    flavour: Flavour, sync: Sync, verdict: FindingLevel, kept: int, caplog: pytest.LogCaptureFixture
):
    with pair(flavour, sync=sync) as both:
        url = both.url("durability=replicated", "replica_timeout=20")
        sent = Sent([], [])
        await _enqueue(sent, url)
        assert len(sent.acknowledged) == EACH
        assert ("after a restart its replicas copy the loss" in caplog.text) is (verdict is BAD)
        async with App(url) as app:
            (found,) = [found for found in await examine(app) if found.check == "durability"]
        assert (found.verdict, "copy the loss" in found.text) == (verdict, verdict is BAD)
        both.primary.kill()
        both.primary.start()
        until(both.is_copied)
        both.fail_over()
        assert await _lost(both, sent.acknowledged) == EACH - kept


@pytest.mark.slow
@pytest.mark.parametrize("settings", [WITHOUT, WITH])
async def test_under_load_only_a_wait_keeps_all_that_was_acknowledged(settings: tuple[str, ...]):
    lost = await fail_over("valkey", *settings)
    assert lost.enqueued > 100
    assert (lost.enqueued_lost == 0) is (settings == WITH)


@pytest.mark.slow
async def test_an_enqueue_of_unknown_outcome_is_repeated_on_the_new_primary_and_makes_each_job_once():
    with pair("valkey") as both:
        async with open_store(both.url(*REPLICATED)) as backend:
            first = [a_job() for _ in range(5)]
            await backend.jobs.enqueue(first)
            both.cut()
            second = [a_job() for _ in range(5)]
            with pytest.raises(OutcomeUnknown):
                await backend.jobs.enqueue(second)
        both.fail_over()
        async with open_store(both.replica_url) as backend:
            assert await backend.jobs.enqueue([*first, *second]) == [False] * 5 + [True] * 5
        check_whole(both.replica_url)


@pytest.mark.slow
async def test_a_staged_enqueue_that_a_failover_has_cut_in_two_makes_all_its_jobs_or_none():
    with pair("valkey") as both:
        async with open_store(both.url()) as old:
            await enqueue(old, a_job())
            both.cut()
        both.fail_over()
        async with open_store(both.replica_url) as backend:
            # The pieces that came before are on the old primary only; this one is the last.
            server = backend._parts.here  # type: ignore[attr-defined]
            call = ScriptCall(STAGE, [b"0123456789abcdef", 1, "", 500, b"job"])
            assert await server.wire.call(call, b"") == 0
            jobs = [a_job() for _ in range(1200)]
            assert await backend.jobs.enqueue(jobs) == [True] * 1200
            assert await _count(backend) == 1201
        check_whole(both.replica_url)


async def _count(backend: Backend) -> int:
    return sum(queue.ready for queue in await backend.insight.queues())


@each_flavour
async def test_a_zombie_of_a_claim_that_a_failover_has_lost_finishes_nothing(flavour: Flavour):
    with pair(flavour) as both:
        async with open_store(both.url()) as old:
            ids = await enqueue(old, *(a_job() for _ in range(20)))
            both.cut()
            zombies = await claim(old, worker_id="zombie")
            assert len(zombies) == 20
        both.fail_over()
        async with open_store(both.replica_url) as backend:
            stale = [Finish(job.lease, Completed('"zombie"')) for job in zombies]
            assert await backend.jobs.finish(stale) == [Verdict.LOST] * 20  # the jobs are ready
            held = await claim(backend, worker_id="next")
            assert {job.id for job in held} == set(ids)
            assert min(job.fence for job in held) > max(job.fence for job in zombies)
            assert await backend.jobs.finish(stale) == [Verdict.LOST] * 20  # now they are leased
            extended = await in_extender(
                backend, lambda extender: extender.extend([job.lease for job in zombies], LEASE)
            )
            assert len(extended.lost) == 20
            done = [Finish(job.lease, Completed('"next"')) for job in held]
            assert await backend.jobs.finish(done) == [Verdict.DONE] * 20
        check_whole(both.replica_url)


@pytest.mark.slow
async def test_a_completion_that_a_failover_has_lost_is_repeated_and_the_job_is_completed_once():
    with pair("valkey") as both:
        async with open_store(both.url()) as old:
            await enqueue(old, a_job())
            (job,) = await claim(old)
            both.cut()
            assert await old.jobs.finish([Finish(job.lease, Completed('"first"'))]) == [Verdict.DONE]
        both.fail_over()
        async with open_store(both.replica_url) as backend:
            assert await state_of(backend, job.id) == "running"  # its lease ends, and it runs again
            assert await backend.jobs.reset(job.id)
            (again,) = await claim(backend)
            assert await backend.jobs.finish([Finish(job.lease, Completed('"first"'))]) == [Verdict.LOST]
            assert await backend.jobs.finish([Finish(again.lease, Completed('"again"'))]) == [Verdict.DONE]
        check_whole(both.replica_url)


@each_flavour
async def test_a_primary_without_enough_replicas_refuses_and_writes_nothing(flavour: Flavour):
    with own_redis(flavour) as server:
        url = f"{server.url}?name=alone"
        async with open_store(url) as backend:
            (job_id,) = await enqueue(backend, a_job())
            connection_of(url).config_set("min-replicas-to-write", 1)
            for act in (lambda: backend.jobs.enqueue([a_job()]), lambda: claim(backend)):
                with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
                    await act()
            assert await state_of(backend, job_id) == "ready"
            connection_of(url).config_set("min-replicas-to-write", 0)
            assert await _count(backend) == 1
        check_whole(url)


async def test_a_store_on_a_replica_is_refused_with_the_address_of_the_primary():
    with pair("valkey") as both:
        async with open_store(both.url()) as backend:
            await enqueue(backend, a_job())
        until(both.is_replicated)
        other = open_backend(both.replica_url)
        with pytest.raises(
            StoreUnavailable, match=f"connect to the primary .a replica of 127.0.0.1:{both.primary.port}"
        ):
            await other.open()
        await other.close()


async def test_the_kernel_looks_whether_the_machine_of_an_idle_connection_is_gone():
    with own_redis("valkey") as server:
        async with open_store(f"{server.url}?name=alone") as backend:
            parts = backend._parts.here  # type: ignore[attr-defined]
            link = await parts.wire.pools.here.take()
            blocking, _ = connect_blocking(parts.server.primary, 1.0)
            for sock in (link.connection._transport.get_extra_info("socket"), blocking._sock):
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            parts.wire.pools.here.put(link)
            blocking.disconnect()


@pytest.mark.parametrize("has_subscribed", [True, False])
async def test_a_listener_leaves_a_frozen_primary_when_another_one_is_known(
    monkeypatch: pytest.MonkeyPatch, has_subscribed: bool
):
    monkeypatch.setattr("holdfast.backends.redis.notifier._LOOK_EVERY", 0.05)
    monkeypatch.setattr("holdfast.backends.redis.notifier._TIMEOUT", 0.5)
    with own_redis("valkey") as frozen, own_redis("valkey") as other:
        async with open_store(f"{frozen.url}?name=alone") as backend:
            heard, wake = waker()
            if not has_subscribed:
                frozen.freeze()
            stop = backend.notifier.listen(wake)
            async with asyncio.timeout(10):
                if has_subscribed:
                    await heard.wait()
                    frozen.freeze()
                else:
                    await asyncio.sleep(0.1)  # the thread waits for a reply
                backend._parts.here.server.primary.address = Address("127.0.0.1", other.port)  # type: ignore[attr-defined]
                heard.clear()
                await heard.wait()  # it has subscribed again, and so may have missed something
            stop()
            frozen.resume()


@pytest.mark.slow
async def test_a_primary_that_was_made_a_replica_answers_nothing_until_it_is_a_primary_again():
    with pair("valkey") as both:
        async with open_store(both.url()) as backend:
            (job_id,) = await enqueue(backend, a_job())
            until(both.is_replicated)
            connection_of(both.replica.url).replicaof("NO", "ONE")
            client = both.client()
            client.replicaof("127.0.0.1", both.replica.port)
            with pytest.raises(StoreUnavailable, match="replica"):
                await backend.jobs.enqueue([a_job()])
            with pytest.raises(StoreUnavailable, match="replica"):  # nor does it show what is out of date
                await state_of(backend, job_id)
            client.replicaof("NO", "ONE")
            assert await state_of(backend, job_id) == "ready"
