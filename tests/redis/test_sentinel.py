"""Sentinels name the primary, also after they have promoted another one."""

from __future__ import annotations

import asyncio

import pytest
from tests.redis.replicas import pair, until
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis
from tests.servers.redis_sentinel import own_sentinel

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Verdict
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, in_extender
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store
from holdfast.testing.throw_away_server import free_port

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flavour", ["valkey", "redis"])
async def test_after_a_failover_a_store_is_on_the_new_primary(flavour: Flavour):
    with pair(flavour) as both, own_sentinel(flavour, both.primary) as sentinel:
        until(lambda: connection_of(f"redis://127.0.0.1:{sentinel.port}").sentinel_slaves("mymaster") != [])
        async with open_store(f"{sentinel.url}?name=pair") as backend:
            ids = await enqueue(backend, *(a_job() for _ in range(10)))
            held = await claim(backend, limit=5)
            leases = [job.lease for job in held]
            assert (await in_extender(backend, lambda extender: extender.extend(leases, LEASE))).lost == []
            until(both.is_replicated)
            both.primary.kill()
            job = a_job()
            await _through_it(lambda: backend.jobs.enqueue([job]))
            assert (await in_extender(backend, lambda extender: extender.extend(leases, LEASE))).lost == []
            done = [Finish(job.lease, Completed()) for job in held]
            assert await backend.jobs.finish(done) == [Verdict.DONE] * 5
            assert {each.id for each in await claim(backend)} == {*ids, job.id} - {each.id for each in held}
        check_whole(both.replica_url)


async def test_a_worker_goes_on_after_a_failover():
    with pair("valkey") as both, own_sentinel("valkey", both.primary) as sentinel:
        until(lambda: connection_of(f"redis://127.0.0.1:{sentinel.port}").sentinel_slaves("mymaster") != [])
        async with App(f"{sentinel.url}?name=pair") as app:
            ended = [asyncio.Event(), asyncio.Event()]

            @app.task
            async def note(number: int) -> None:
                ended[number].set()

            async with app.working(concurrency=4), asyncio.timeout(40):
                await note.enqueue(0)
                await ended[0].wait()
                until(both.is_replicated)
                both.primary.kill()
                await _through_it(lambda: note.enqueue(1))
                await ended[1].wait()


async def _through_it(act):
    """Repeat a call while there is no primary."""
    while True:
        try:
            return await act()
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(0.05)


async def test_a_sentinel_that_does_not_answer_or_does_not_know_is_passed_over():
    with own_redis("valkey") as server, own_sentinel("valkey", server) as sentinel:
        with own_sentinel("valkey", server) as other:
            connection_of(f"redis://127.0.0.1:{other.port}").sentinel_remove("mymaster")
            hosts = f"127.0.0.1:{free_port()},127.0.0.1:{other.port},127.0.0.1:{sentinel.port}"
            async with open_store(f"redis+sentinel://{hosts}/mymaster?name=a") as backend:
                await enqueue(backend, a_job())
        lost = open_backend(f"redis+sentinel://127.0.0.1:{sentinel.port}/other?name=a")
        with pytest.raises(StoreUnavailable, match="it monitors no service other"):
            await lost.open()
        await lost.close()


async def test_sentinels_may_ask_for_a_password():
    with own_redis("valkey") as server, own_sentinel("valkey", server, "open-sesame") as sentinel:
        async with open_store(f"{sentinel.url}?name=a&sentinel_password=open-sesame") as backend:
            await enqueue(backend, a_job())
        refused = open_backend(f"{sentinel.url}?name=a&sentinel_password=wrong")
        with pytest.raises(StoreUnavailable, match="no sentinel names a primary") as error:
            await refused.open()
        assert "wrong" not in str(error.value)
        await refused.close()
