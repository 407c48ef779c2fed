"""A handler that is stuck in a process that is not ours: the worker breaks, and the process lives."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.app.work import LIMIT, QUICK

from holdfast import App, Context, JobHandle, JobState
from holdfast.worker.worker import WorkerBroken

GRACE = 0.3
LEASE = 3.0


@pytest.fixture(autouse=True)
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The codes with which this process would have ended."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    yield codes
    assert codes == []


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def _broken(app: App, how: str, *, lease: float = LEASE) -> str:
    """Run what is ready until the worker breaks; return what it says."""
    settings: dict[str, Any] = {"stuck_grace": GRACE, "lease": lease, "abort_grace": 0.2, "poll_interval": 0.02}
    running = app.drain("default", **settings) if how == "drain" else app.worker(**(QUICK | settings)).run()
    with pytest.raises(WorkerBroken) as broken:
        await asyncio.wait_for(running, LIMIT)
    return str(broken.value)


async def _taken_when_expired(app: App, job: JobHandle) -> None:
    """Wait until the lease of a job is over; it is then lost, and not before."""
    assert await app.rescue() == [], "the lease must be left to expire"
    (lease,) = await app.leases()
    assert lease.job_id == job.id
    await asyncio.sleep(max(lease.expires_in.total_seconds(), 0) + 0.05)  # a lease ends by the clock of the store
    (rescued,) = await app.rescue()
    assert (rescued.job_id, rescued.state) == (job.id, JobState.READY)
    assert [attempt.outcome for attempt in (await job.details()).attempts] == ["rescued"]


@pytest.mark.parametrize("how", ["drain", "worker"])
async def test_a_stuck_thread_breaks_the_worker_and_its_lease_is_left_to_expire(
    file_app: App, let_go: threading.Event, how: str
):
    loop = asyncio.get_running_loop()
    told: asyncio.Future[bool] = loop.create_future()

    @file_app.task(timeout=0.2)
    def hang(ctx: Context) -> None:
        let_go.wait(LIMIT)
        loop.call_soon_threadsafe(told.set_result, ctx.lease_lost.is_set())

    job = await hang.enqueue()
    said = await _broken(file_app, how)

    assert f"job {job.id} (hang) is stuck" in said
    assert 'executor="process"' in said
    await _taken_when_expired(file_app, job)
    let_go.set()
    assert await asyncio.wait_for(told, LIMIT), "whoever looks at the signal is told to stop"


async def test_the_jobs_beside_a_stuck_one_are_given_back(file_app: App, let_go: threading.Event):
    @file_app.task(timeout=0.2)
    def hang() -> None:
        let_go.wait(LIMIT)

    @file_app.task
    async def wait() -> None:
        await asyncio.Event().wait()

    stuck, beside = await hang.enqueue(), await wait.enqueue()
    await _broken(file_app, "drain")

    assert await beside.state() is JobState.READY
    assert [attempt.outcome for attempt in (await beside.details()).attempts] == ["released"]
    assert [lease.job_id for lease in await file_app.leases()] == [stuck.id]


async def test_a_handler_that_blocks_the_loop_holds_its_job_no_longer_than_the_lease(file_app: App):
    """Nobody in the process can give anything back while it does: so the lease must not be extended on its behalf."""
    over: list[bool] = []

    def look() -> None:
        with App(file_app.backend.full_url).sync as other:
            over.extend(lease.expires_in.total_seconds() <= 0 for lease in other.leases())

    @file_app.task(timeout=0.1)
    async def block() -> None:
        time.sleep(0.1 + GRACE + 1.5)  # noqa: ASYNC251 - what a handler does that should not
        looking = threading.Thread(target=look)
        looking.start()
        looking.join()

    await block.enqueue()
    await _broken(file_app, "drain", lease=1.0)

    assert over == [True]
