"""Streams are refused, with the reason and the remedy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import App, Event, JobHandle
from holdfast.backends.redis.backend import RedisBackend
from holdfast.cli.top import look
from holdfast.errors import Unsupported
from holdfast.reports.doctor import examine
from holdfast.reports.finding import FindingLevel


async def test_streams_are_refused_with_the_reason_and_the_remedy(url: str):
    async with App(url) as app:
        with pytest.raises(Unsupported, match="SQL store") as refused:
            await app.append("orders", stream="order-1", name="placed")
        assert "redis cannot keep streams" in str(refused.value)
        assert "events=" in str(refused.value)


async def test_consumers_are_refused_with_the_reason_and_the_remedy(url: str):
    async with App(url) as app:

        @app.consumer("billing", category="orders")
        async def bill(event: Event) -> None: ...

        with pytest.raises(Unsupported, match="SQL store"):
            async with app.working():
                pass


async def test_events_in_a_sql_store_next_to_it_are_handled_as_jobs_on_redis(url: str, tmp_path: Path):
    async with App(url) as app, App(f"sqlite:///{tmp_path / 'events.db'}") as events:

        @app.task
        async def bill(order: str) -> str:
            return order

        billed: asyncio.Queue[JobHandle[str]] = asyncio.Queue()

        @events.consumer("billing", category="orders")
        async def sync(event: Event) -> None:
            await billed.put(await bill.enqueue(event.stream))

        async with app.working(), events.working():
            await events.append("orders", stream="order-1", name="placed")
            async with asyncio.timeout(30):
                job = await billed.get()
            assert await job.result(timeout=20) == "order-1"


def test_the_capability_names_it(backend: RedisBackend):
    with pytest.raises(Unsupported, match="memory"):
        backend.capabilities.require("keep streams")


async def test_what_shows_jobs_and_streams_shows_the_jobs(url: str):
    async with App(url) as app:

        @app.task
        async def greet() -> None: ...

        await greet.enqueue()
        findings = {finding.check: finding for finding in await examine(app)}
        assert findings["consumers"].text == "none"
        assert findings["durability"].verdict is FindingLevel.BAD  # a server for tests keeps nothing
        seen = await look(app)
        assert ([queue.ready for queue in seen.queues], seen.consumers) == ([1], ())
