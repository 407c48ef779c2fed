"""Very many jobs at once: what takes long is done while the server has something to do, and the event loop goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.backends.postgres import runners
from holdfast.backends.postgres.verbs import enqueue as enqueuing
from holdfast.backends.postgres.verbs.copying import job_row
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job


async def test_jobs_that_take_long_to_be_made_ready_are_not_taken_for_a_process_that_stands_still(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    """A million rows take longer than a transaction of ours may be idle: here it may be so for half a second."""

    def slowly(*columns: Any) -> bytes:
        time.sleep(0.003)
        return job_row(*columns)

    monkeypatch.setattr(runners, "_BEGIN_STEPS", runners._BEGIN_STEPS.replace(b"'5s'", b"'500ms'"))
    monkeypatch.setattr(enqueuing, "job_row", slowly)
    assert await backend.jobs.enqueue([a_job() for _ in range(300)]) == [True] * 300


async def test_the_event_loop_goes_on_while_very_many_jobs_are_enqueued(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    seen: list[int] = []

    def noting(*columns: Any) -> bytes:
        seen.append(turns)
        return job_row(*columns)

    monkeypatch.setattr(enqueuing, "job_row", noting)
    turning = asyncio.create_task(turn())
    jobs = [a_job() for _ in range(5_000)]
    assert await backend.jobs.enqueue(jobs) == [True] * 5_000
    turning.cancel()
    assert len(set(seen)) >= 5
    assert (await backend.jobs.outstanding(["greet"], None)).ready == 5_000
