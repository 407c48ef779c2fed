"""Streams are refused, with the reason and the remedy."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.backends.redis.backend import RedisBackend
from holdfast.cli.doctor_checks import examine
from holdfast.cli.doctor_finding import FindingLevel
from holdfast.cli.top import look
from holdfast.errors import Unsupported


async def test_streams_are_refused_with_the_reason_and_the_remedy(url: str):
    async with App(url) as app:
        with pytest.raises(Unsupported, match="SQL store") as refused:
            await app.append("orders", stream="order-1", name="placed")
        assert "redis cannot keep streams" in str(refused.value)


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
        assert findings["durability"].verdict is FindingLevel.WARN  # a server for tests keeps nothing
        seen = await look(app)
        assert ([queue.ready for queue in seen.queues], seen.consumers) == ([1], ())
