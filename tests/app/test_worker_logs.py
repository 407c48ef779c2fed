"""What a worker logs: rescues in one line per dead worker, the wait for a lease, the ends of jobs at DEBUG."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest
from tests.app.work import LIMIT, ended, run_all, working

from holdfast import App, Context
from holdfast.store.values import ClaimRequest, WorkerHeartbeat
from holdfast.worker.dead_workers import DeadWorkers

LEASE = 2.0


async def claimed_by_dead(app: App, worker_id: str, *, pid: int, lease: float = LEASE) -> None:
    """Claim everything for a worker that sends one heartbeat, before its first claim, and nothing after it."""
    backend = await app.opened()
    span = timedelta(seconds=lease)
    extender = backend.extender()
    heartbeat = WorkerHeartbeat(
        worker_id=worker_id, host=os.uname().nodename, pid=pid, queues=None, concurrency=10, lease=span, running=0
    )
    await asyncio.to_thread(extender.heartbeat, heartbeat)
    await asyncio.to_thread(extender.close)
    await backend.jobs.claim(ClaimRequest(worker_id=worker_id, tasks=("greet",), limit=100, lease=span))


@pytest.fixture
def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def lines(caplog: pytest.LogCaptureFixture, level: int, part: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level and part in r.getMessage()]


async def test_the_jobs_of_a_dead_worker_are_rescued_in_one_line(file_app: App, caplog, dead_pid: int):
    @file_app.task
    def greet(number: int) -> None: ...

    jobs = await greet.enqueue_many([{"number": number} for number in range(3)])
    await claimed_by_dead(file_app, "gone-1", pid=dead_pid)
    with caplog.at_level(logging.DEBUG, "holdfast.worker"):
        async with working(file_app, lease=LEASE, rescue_limit=2):  # the jobs come in two batches
            for job in jobs:
                await ended(job)

    (line,) = lines(caplog, logging.WARNING, "ready again")
    assert re.fullmatch(r"3 jobs of worker gone-1 \(no heartbeat for [23] s\) are ready again", line)
    assert "lost" not in caplog.text
    assert len(lines(caplog, logging.DEBUG, "of worker gone-1 is now ready")) == 3


async def test_an_idle_worker_says_once_for_whose_lease_it_waits(file_app: App, caplog, dead_pid: int):
    @file_app.task
    def greet() -> None: ...

    job = await greet.enqueue()
    await claimed_by_dead(file_app, "gone-1", pid=dead_pid, lease=4.0)
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        async with working(file_app, lease=4.0):
            await ended(job)

    (line,) = lines(caplog, logging.WARNING, "held by")
    assert re.fullmatch(
        r"1 job is held by worker gone-1, no heartbeat for [12] s; waiting up to [23] s for its lease to expire", line
    )


async def test_an_idle_worker_does_not_speak_of_workers_that_live(file_app: App, caplog, monkeypatch):
    looked = asyncio.Event()
    look = DeadWorkers.look

    async def observed(self: DeadWorkers, request: ClaimRequest) -> None:
        await look(self, request)
        looked.set()

    monkeypatch.setattr(DeadWorkers, "look", observed)

    @file_app.task
    def greet() -> None: ...

    await greet.enqueue()
    await claimed_by_dead(file_app, "busy-1", pid=os.getpid(), lease=30.0)
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        async with working(file_app):
            await asyncio.wait_for(looked.wait(), LIMIT)

    assert lines(caplog, logging.WARNING, "held by") == []


async def test_the_end_of_each_job_is_logged_at_debug(file_app: App, caplog):
    @file_app.task
    async def at_once() -> None: ...

    @file_app.task
    def in_a_thread() -> None: ...

    @file_app.task
    async def in_its_transaction(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    @file_app.task(max_attempts=1)
    async def wrong() -> None:
        raise ValueError("no")

    tasks = (at_once, in_a_thread, in_its_transaction, wrong)
    jobs = {task.task.name: await task.enqueue() for task in tasks}
    with caplog.at_level(logging.DEBUG, "holdfast.worker"):
        await run_all(file_app)

    for name, outcome in zip(jobs, ("completed", "completed", "completed", "failed"), strict=True):
        (line,) = lines(caplog, logging.DEBUG, jobs[name].id)
        assert re.fullmatch(rf"job {jobs[name].id} \({name}\) {outcome} in \d+\.\d ms", line)


async def test_the_end_of_a_job_is_not_logged_at_info(file_app: App, caplog):
    @file_app.task
    async def at_once() -> None: ...

    job = await at_once.enqueue()
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        await run_all(file_app)

    assert job.id not in caplog.text
