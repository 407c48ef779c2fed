"""What a server does for workers over HTTP, beside its answers: it rescues leases and prunes finished jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.server.conftest import claim_one, client_of
from tests.server.test_jobs import enqueue, finish

from holdfast import App, Retention
from holdfast.server import asgi, claims

HANGS = 0.8  # seconds: more than a quarter of the shortest lease


@pytest.mark.parametrize(("lease", "is_broken"), [(2, True), (8, False)])
async def test_a_rescue_waits_again_after_the_store_hung_for_a_quarter_of_the_shortest_lease(
    sqlite_app: App, monkeypatch: pytest.MonkeyPatch, lease: int, *, is_broken: bool
):
    store = (await sqlite_app.opened()).jobs
    promote, rescue = store.promote, store.rescue
    asked = asyncio.Queue[timedelta]()
    hangs = False

    async def hung(limit: int) -> Any:
        nonlocal hangs
        if hangs:
            hangs = False
            await asyncio.sleep(HANGS)
        return await promote(limit)

    async def noted(unbroken: timedelta, limit: int) -> Any:
        asked.put_nowait(unbroken)
        return await rescue(unbroken, limit)

    monkeypatch.setattr(store, "promote", hung)
    monkeypatch.setattr(store, "rescue", noted)
    server = asgi(sqlite_app)
    async with client_of(server) as http, asyncio.timeout(20):
        job_id = await enqueue(http, queue="orders")
        claimed = await claim_one(http, lease_seconds=30)
        await http.post(f"/v1/jobs/{job_id}/extend", json={"fence": claimed["lease"]["fence"], "lease_seconds": lease})
        while await asked.get() < timedelta(seconds=0.6):
            pass
        hangs = True
        while hangs:
            await asked.get()
        after = await asked.get()
    await server.state.holdfast.close()

    assert (after < timedelta(seconds=HANGS)) == is_broken


async def test_slow_calls_that_succeed_delay_a_rescue_and_do_not_prevent_it(
    sqlite_app: App, monkeypatch: pytest.MonkeyPatch
):
    store = (await sqlite_app.opened()).jobs
    promote = store.promote
    done = 0

    async def slow(limit: int) -> Any:
        nonlocal done
        await asyncio.sleep(HANGS)
        answer = await promote(limit)
        done += 1
        return answer

    monkeypatch.setattr(claims, "_LONGEST_DELAY", 2.0)
    server = asgi(sqlite_app)
    async with client_of(server) as http, asyncio.timeout(20):
        job_id = await enqueue(http, queue="orders")
        await claim_one(http, lease_seconds=2)
        monkeypatch.setattr(store, "promote", slow)
        while (await sqlite_app.jobs.show(job_id)).job.state == "running":  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.05)
    await server.state.holdfast.close()

    assert done > 2


async def test_the_shortest_lease_counts_while_it_is_held_and_not_for_ever(sqlite_app: App, monkeypatch):
    monkeypatch.setattr(claims, "_SHORTEST_KEPT", 0.3)
    server = asgi(sqlite_app)
    serving = server.state.holdfast.claims
    async with client_of(server) as http, asyncio.timeout(20):
        body = {"leases": [{"lease": {"job_id": str(UUID(int=7)), "seq": 1, "fence": "1"}}], "lease_seconds": 2}
        await http.post("/v1/leases/extend", json=body)
        await http.post("/v1/leases/claim", json={"queues": ["orders"], "tasks": ["charge"], "lease_seconds": 2})
        assert serving.gap == claims._MOST_GAP  # nothing was leased

        await enqueue(http, queue="orders")
        await claim_one(http, lease_seconds=2)
        assert serving.gap == 0.5
        while serving.gap < claims._MOST_GAP:  # noqa: ASYNC110 - only time passes
            await asyncio.sleep(0.05)
    await server.state.holdfast.close()


async def test_a_full_batch_of_pruned_jobs_is_followed_by_another(sqlite_app: App, monkeypatch):
    monkeypatch.setattr(claims, "_LIMIT", 1)
    monkeypatch.setattr(claims, "_PRUNE_EVERY", 1.0)
    monkeypatch.setattr(sqlite_app, "retention", Retention(completed=timedelta(0)))
    server = asgi(sqlite_app)
    async with client_of(server) as http, asyncio.timeout(6):
        ids = [await enqueue(http, queue="orders") for _ in range(8)]
        for _ in ids:
            await finish(http, await claim_one(http))
        while await sqlite_app.backend.insight.states(ids):  # noqa: ASYNC110 - the store sends no event
            await asyncio.sleep(0.02)
    await server.state.holdfast.close()
