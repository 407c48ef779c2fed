"""Claims that wait for jobs: long polls that cost the store little."""

from __future__ import annotations

import asyncio

from tests.server.conftest import claim_one, client_of
from tests.server.test_jobs import enqueue
from tests.servers.postgres_schemas import clean_schema

from holdfast import App
from holdfast.server import asgi, claims
from holdfast.server.api import disconnects
from holdfast.store.values import ClaimRequest


async def test_a_waiting_claim_gets_the_job_that_comes(http):
    waiting = asyncio.create_task(claim_one(http, wait_seconds=20))
    await asyncio.sleep(0.05)
    job_id = await enqueue(http)

    assert (await waiting)["job"]["id"] == job_id


async def test_waiting_claims_go_on_after_any_failure_of_the_maintenance(http, app: App, monkeypatch):
    original, failed = (await app.opened()).jobs.promote, asyncio.Event()

    async def broken_once(limit: int) -> object:
        if not failed.is_set():
            failed.set()
            raise ValueError("a mistake in a store")
        return await original(limit)

    monkeypatch.setattr(app.backend.jobs, "promote", broken_once)
    waiting = asyncio.create_task(claim_one(http, wait_seconds=5))
    await failed.wait()
    job_id = await enqueue(http, delay_seconds=0.1)

    assert (await waiting)["job"]["id"] == job_id


async def test_a_waiting_claim_gets_a_job_when_it_is_due(http):
    job_id = await enqueue(http, delay_seconds=0.7)

    assert (await claim_one(http, wait_seconds=20))["job"]["id"] == job_id


async def test_the_more_groups_of_claims_wait_the_less_often_each_asks(server, app: App, monkeypatch):
    asked: list[object] = []
    await app.opened()

    async def nothing(_: object, request: ClaimRequest, **__: object) -> list[object]:
        asked.append(request.queues)
        return []

    monkeypatch.setattr(claims, "claim_or_release", nothing)
    monkeypatch.setattr(claims, "_POLL", 0.02)
    monkeypatch.setattr(claims, "_EACH", 0.02)
    async with client_of(server) as http:
        bodies = [{"queues": [f"q{n}"], "tasks": ["charge"], "wait_seconds": 2} for n in range(50)]
        await asyncio.gather(*(http.post("/v1/leases/claim", json=body) for body in bodies))

    assert len(set(asked)) == 50
    assert len(asked) <= 50 * 4  # at once, then about once per second; some fifty rounds went by


def test_clients_that_wait_equally_long_do_not_return_together():
    waits = [disconnects.spread(20) for _ in range(100)]

    assert 18 <= min(waits) < 18.5
    assert 19.5 < max(waits) <= 20


async def test_waiting_claims_and_waits_for_jobs_hold_no_connection_of_the_store():
    with clean_schema() as url:
        app = App(f"{url}&pool=2")
        server = asgi(app)
        async with client_of(server) as http:
            later = [await enqueue(http, queue="later", delay_seconds=3600) for _ in range(50)]
            bodies = [{"queues": [f"q{n}"], "tasks": ["charge"], "wait_seconds": 20} for n in range(50)]
            waiting = [asyncio.create_task(http.post("/v1/leases/claim", json=body)) for body in bodies]
            waiting += [asyncio.create_task(http.get(f"/v1/jobs/{each}/wait?wait_seconds=20")) for each in later]
            await http.post("/v1/leases/claim", json=bodies[0] | {"wait_seconds": 0})  # gets a connection after them
            async with asyncio.timeout(5):
                await enqueue(http, queue="orders")
                queues = {queue["name"]: queue["ready"] for queue in (await http.get("/v1/queues")).json()["queues"]}
            assert (queues["orders"], queues["later"]) == (1, 0)
            assert not any(each.done() for each in waiting)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await server.state.holdfast.close()
        await app.close()


async def test_waiting_claims_share_what_comes_without_doubles(http):
    waiting = [asyncio.create_task(claim_one(http, wait_seconds=20)) for _ in range(20)]
    await asyncio.sleep(0.05)
    ids = [await enqueue(http, kwargs={"order_id": n}) for n in range(20)]

    claimed = await asyncio.gather(*waiting)

    assert sorted(one["job"]["id"] for one in claimed) == sorted(ids)
