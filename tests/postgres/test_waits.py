"""Waits for a job whose event loop was closed under them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from holdfast import App, JobHandle

TIMEOUT = 10.0


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


def _wait_in_a_loop_that_closes(job: JobHandle, has_listened: threading.Event) -> asyncio.Task[object]:
    """Begin to wait for a job, and close the loop as nobody should: without a word to what runs in it."""
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(job.wait())

    loop.run_until_complete(asyncio.to_thread(has_listened.wait, TIMEOUT))
    assert has_listened.is_set()
    loop.close()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined] # what this test is about
    return waiting


async def test_an_enqueue_that_was_committed_does_not_raise_because_somebody_waited_in_a_loop_that_is_closed(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    @app.task
    async def send(n: int) -> None: ...

    first = await send.enqueue(n=1)
    has_listened = threading.Event()
    hooks = []
    listen = app.backend.notifier.listen_ends

    def noted(wake):
        hooks.append(wake)
        has_listened.set()
        return listen(wake)

    monkeypatch.setattr(app.backend.notifier, "listen_ends", noted)
    waiting = await asyncio.to_thread(_wait_in_a_loop_that_closes, first, has_listened)

    for n in range(2, 4):
        await send.enqueue(n=n)
    for hook in hooks:
        hook()  # which does no harm by itself, whoever calls it

    assert len((await app.jobs.list("ready")).jobs) == 3
    del waiting
    gc.collect()  # here, and not in another test
