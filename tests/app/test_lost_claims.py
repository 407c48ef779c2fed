"""Claims whose answer was lost: what they took is given back, and was never begun."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from tests.app.test_lost_replies import LOST, Failing
from tests.app.work import LIMIT, ended, working

from holdfast import App, Context, JobState

LEASE = 30.0


@pytest.fixture
async def jobs(file_app: App):
    return (await file_app.opened()).jobs


@pytest.mark.parametrize("was_done", [True, False])
async def test_its_jobs_run_soon_beside_others_and_without_a_mark(file_app: App, jobs, monkeypatch, was_done):
    processes: list[int] = []

    @file_app.task(max_attempts=1)
    async def work(n: int) -> None:
        processes.append(os.getpid())

    handles = await work.enqueue_many([{"n": n} for n in range(20)])
    monkeypatch.setattr(jobs, "claim", Failing(jobs.claim, LOST, LOST, first=was_done))
    began = time.monotonic()
    async with working(file_app, lease=LEASE) as worker:
        assert {await ended(job) for job in handles} == {JobState.COMPLETED}

    assert time.monotonic() - began < LEASE / 3
    assert processes == [os.getpid()] * 20
    assert {attempt.outcome for job in handles for attempt in (await job.details()).attempts} <= {"released"}
    assert worker.status().totals.completed == 20


async def test_what_the_worker_knows_of_is_left_alone(file_app: App, jobs, monkeypatch):
    go_on, has_begun = asyncio.Event(), asyncio.Event()

    @file_app.task
    async def wait(ctx: Context) -> int:
        has_begun.set()
        await go_on.wait()
        return ctx.job.attempt

    @file_app.task
    async def work() -> None: ...

    waiting = await wait.enqueue()
    async with working(file_app, lease=LEASE):
        async with asyncio.timeout(LIMIT):
            await has_begun.wait()
        monkeypatch.setattr(jobs, "claim", Failing(jobs.claim, LOST))
        other = await work.enqueue()
        assert await ended(other) is JobState.COMPLETED
        assert (await waiting.details()).attempts == []
        go_on.set()
        assert await ended(waiting) is JobState.COMPLETED
    assert await waiting.result() == 1


async def test_a_worker_that_ends_leaves_nothing_of_it_behind(file_app: App, jobs, monkeypatch):
    @file_app.task
    async def work(n: int) -> None: ...

    handles = await work.enqueue_many([{"n": n} for n in range(20)])
    was_lost = asyncio.Event()
    real = jobs.claim

    async def claim(*args, **words):
        await real(*args, **words)
        was_lost.set()
        worker.stop()
        raise LOST

    monkeypatch.setattr(jobs, "claim", claim)
    async with working(file_app, lease=LEASE) as worker, asyncio.timeout(LIMIT):
        await was_lost.wait()

    assert {await job.state() for job in handles} == {JobState.READY}
    assert {attempt.outcome for job in handles for attempt in (await job.details()).attempts} == {"released"}
    assert await (await file_app.opened()).insight.workers() == []
