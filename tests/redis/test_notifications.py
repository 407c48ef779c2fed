"""A completion wakes the workers of its process only if another job is ready because of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.backends.redis.notifier import RedisNotifier
from holdfast.model.outcome import Completed
from holdfast.testing.conformance.base import a_job, claim_one, enqueue, finish
from holdfast.testing.stores import open_store


@pytest.mark.parametrize(("order_key", "wakes"), [(None, False), ("account-1", True)])
async def test_a_completion_wakes_its_process_only_if_the_next_job_of_its_key_is_ready(
    url: str, monkeypatch: pytest.MonkeyPatch, order_key: str | None, wakes: bool
):
    woken: list[bool] = []
    monkeypatch.setattr(RedisNotifier, "wake_here", lambda _: woken.append(True))
    async with open_store(url) as backend:
        await enqueue(backend, *(replace(a_job(), order_key=order_key) for _ in range(2)))
        held = await claim_one(backend)
        assert woken
        woken.clear()
        await finish(backend, held.lease, Completed())
        assert bool(woken) is wakes
