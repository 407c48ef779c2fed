"""A worker over an app's tasks: what it claims, what it tells of itself, and workers of one's own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.app.work import ended, run_all, working

from holdfast import App, Context, Job, JobState, Worker
from holdfast.model.job import LeasedJob


async def test_status_shows_phase_running_jobs_and_totals(app: App):
    go_on = asyncio.Event()
    begun = asyncio.Event()

    @app.task
    async def waits(n: int) -> None:
        begun.set()
        await go_on.wait()

    job = await waits.enqueue(n=1)
    async with working(app, worker_id="mine", concurrency=1) as worker:
        await begun.wait()
        status = worker.status()
        assert (status.phase, status.running) == ("running", (job.id,))
        assert status.totals.completed == 0
        (view,) = await app.workers()
        assert view.heartbeat.worker_id == worker.worker_id
        assert (view.heartbeat.concurrency, view.heartbeat.queues) == (1, None)
        go_on.set()
        await ended(job)
    status = worker.status()
    assert (status.phase, status.running, status.buffered) == ("ended", (), 0)
    assert status.totals.completed == 1
    assert await app.workers() == []


async def test_two_workers_of_one_name_do_not_pass_for_one_another(app: App):
    app.task(_noop)

    assert app.worker(worker_id="twin").worker_id != app.worker(worker_id="twin").worker_id


async def _noop() -> None: ...


async def test_a_worker_serves_its_queues_only(app: App):
    task = app.task(_noop)
    here = await task.options(queue="here").enqueue()
    there = await task.options(queue="there").enqueue()

    await run_all(app, queues=["here"])

    assert (await here.state(), await there.state()) == (JobState.COMPLETED, JobState.READY)


async def test_a_worker_claims_no_job_of_a_task_that_it_does_not_know(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with App(url) as old, App(url) as new:
        old.task(name="known")(_noop)
        new.task(name="known")(_noop)
        unknown = await new.task(name="unknown")(_noop).enqueue()
        known = await new.enqueue("known")

        worker = await run_all(old)

        assert await known.state() is JobState.COMPLETED
        details = await unknown.details()
        assert (details.job.state, details.job.attempt, details.attempts) == (JobState.READY, 0, [])
        assert worker.left is not None
        assert worker.left.unknown == 1
        await run_all(new)
        assert await unknown.state() is JobState.COMPLETED


async def test_a_worker_is_woken_by_an_enqueue_and_does_not_wait_for_its_poll(app: App):
    task = app.task(_noop)
    async with working(app, poll_interval=30, promote_every=30):
        first = await task.enqueue()
        assert await ended(first) is JobState.COMPLETED
        assert await ended(await task.enqueue()) is JobState.COMPLETED


async def test_a_stopped_worker_finishes_what_runs_and_leaves_the_rest(app: App):
    go_on, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits(n: int) -> None:
        begun.set()
        await go_on.wait()

    jobs = await waits.enqueue_many([{"n": n} for n in range(5)])
    async with working(app, concurrency=1) as worker:
        await begun.wait()
        worker.stop()
        go_on.set()
    states = [await job.state() for job in jobs]

    assert states == [JobState.COMPLETED] + [JobState.READY] * 4
    assert (await jobs[1].details()).job.attempt in {0, 1}
    assert await app.leases() == []


async def test_concurrency_is_the_most_that_runs_at_once(app: App):
    running = most = 0

    @app.task
    async def counts() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    await counts.enqueue_many([()] * 30)
    await run_all(app, concurrency=4)

    assert most == 4


async def test_a_process_of_ones_own_takes_the_place_of_the_handlers(app: App):
    seen: list[Any] = []

    class Mine(Worker):
        async def process(self, job: LeasedJob, ctx: Context) -> str:
            seen.append((job.task, job.payload, ctx.job is job))
            await ctx.progress(10)
            return f"processed {job.task}"

    @app.task
    async def handler(n: int) -> None:
        raise AssertionError("not called")

    job = await handler.enqueue(n=1)
    await run_all(app, worker_class=Mine)

    assert seen == [("handler", '[[],{"n":1}]', True)]
    assert await job.result(str) == "processed handler"


async def test_a_plain_process_of_ones_own_runs_in_a_thread(app: App):
    names: list[str] = []

    class Mine(Worker):
        def process(self, job: Job, ctx: Context) -> int:  # type: ignore[override]
            names.append(threading.current_thread().name)
            ctx.sync.progress(10)
            with ctx.sync.transaction() as connection:
                connection.execute("select 1")
                ctx.result = 7
            return 8

    @app.task
    async def handler() -> None: ...

    job = await handler.enqueue()
    await run_all(app, worker_class=Mine)

    assert names[0].startswith("holdfast-handler")
    assert await job.result(int) == 7


async def test_a_process_of_ones_own_may_call_the_usual_one(app: App):
    around: list[str] = []

    class Timing(Worker):
        async def process(self, job: LeasedJob, ctx: Context) -> Any:
            around.append("before")
            try:
                return await super().process(job, ctx)
            finally:
                around.append("after")

    @app.task
    async def one(ctx: Context, n: int) -> int:
        around.append(f"handler {ctx.job.attempt}")
        return n + 1

    @app.task
    def two(n: int) -> int:
        return n * 2

    first, second = await one.enqueue(n=1), await two.enqueue(n=4)
    await run_all(app, worker_class=Timing, concurrency=1)

    assert (await first.result(), await second.result()) == (2, 8)
    assert around == ["before", "handler 1", "after", "before", "after"]


async def test_an_error_in_a_process_of_ones_own_is_an_attempt_that_failed(app: App):
    class Broken(Worker):
        async def process(self, job: LeasedJob, ctx: Context) -> None:
            raise ValueError("mine")

    @app.task(max_attempts=2, retry=0.01)
    async def handler() -> None: ...

    job = await handler.enqueue()
    await run_all(app, worker_class=Broken)

    assert [attempt.message for attempt in (await job.details()).attempts] == ["mine", "mine"]
    assert await job.state() is JobState.FAILED


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_a_thousand_jobs_run_once_each(app: App, concurrency):
    seen: list[int] = []

    @app.task
    async def notes(n: int) -> None:
        seen.append(n)

    await notes.enqueue_many([{"n": n} for n in range(1000)])
    worker = await run_all(app, concurrency=concurrency)

    assert sorted(seen) == list(range(1000))
    assert worker.status().totals.completed == 1000
