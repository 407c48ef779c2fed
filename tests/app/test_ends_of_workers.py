"""How workers begin and end when something else happens in the same moment: cancelled, broken, without a store."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.work import LIMIT, QUICK, connected, ended, working

from holdfast import App, Context, JobHandle, JobState, Worker
from holdfast.store.values import Claim, ClaimRequest
from holdfast.worker import worker as worker_module
from holdfast.worker.decision import Exit
from holdfast.worker.worker import WorkerBroken

ENDED = 5
LONG = 10.0  # seconds for which finishes wait in the buffer
QUIET: dict[str, Any] = QUICK | {"flush_after": LONG, "abort_grace": 0.5}


class Work:
    """Five jobs that end, and one that goes on until it is broken off."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.broken_off = 0

        @app.task
        async def work(n: int) -> None:
            if n < ENDED:
                await asyncio.sleep(0)
                return
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.broken_off += 1
                raise

        self._task = work
        self.jobs: list[JobHandle] = []

    async def begin(self, **settings: Any) -> tuple[Worker, asyncio.Task[Any]]:
        """Run a worker until five finishes are buffered beside the job that goes on."""
        self.jobs = list(await self._task.enqueue_many([{"n": n} for n in range(ENDED + 1)]))
        worker = self.app.worker(**(QUIET | settings))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(LIMIT):
            while worker.status().buffered < ENDED:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.002)
        assert [await job.state() for job in self.jobs] == [JobState.RUNNING] * (ENDED + 1)
        return worker, running

    async def assert_given_back(self) -> None:
        """What had ended is written, what had not is ready again without costing an attempt; nobody is on the list."""
        *done, last = self.jobs
        assert [await job.state() for job in done] == [JobState.COMPLETED] * ENDED
        details = await last.details()
        assert (details.job.state, self.broken_off) == (JobState.READY, 1)
        assert [attempt.outcome for attempt in details.attempts] == ["released"]
        assert await self.app.leases() == []
        assert await self.app.workers() == []


@pytest.fixture
async def work(file_app: App) -> AsyncIterator[Work]:
    before = set(threading.enumerate())
    yield Work(file_app)
    left = [thread.name for thread in set(threading.enumerate()) - before if "keeper" in thread.name]
    assert left == [], "an extending thread was left behind"


async def over(running: asyncio.Task[Any]) -> None:
    """Wait for the end of a worker that was cancelled."""
    async with asyncio.timeout(LIMIT):
        await asyncio.wait({running})
    assert running.cancelled()


@pytest.mark.parametrize("times", [1, 2, 4])
async def test_a_worker_that_is_cancelled_writes_what_has_ended_and_gives_back_the_rest(work: Work, times):
    worker, running = await work.begin()
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0)
    await over(running)

    await work.assert_given_back()
    assert (worker.status().totals.completed, worker.status().totals.released) == (ENDED, 1)


async def test_a_worker_that_is_cancelled_again_while_it_gives_back_still_ends_everything(work: Work, monkeypatch):
    backend = await work.app.opened()
    is_writing, go_on = asyncio.Event(), asyncio.Event()
    finish = backend.jobs.finish

    async def slow(finishes: Any, *, briefly: bool) -> Any:
        is_writing.set()
        await go_on.wait()
        return await finish(finishes, briefly=briefly)

    _, running = await work.begin()
    monkeypatch.setattr(backend.jobs, "finish", slow)
    running.cancel()
    await is_writing.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()
    go_on.set()
    await over(running)

    await work.assert_given_back()


async def test_a_worker_that_is_broken_writes_what_has_ended_and_gives_back_the_rest(work: Work, monkeypatch):
    backend = await work.app.opened()

    async def fail(limit: int) -> Any:
        raise ValueError("unforeseen")

    _, running = await work.begin()
    monkeypatch.setattr(backend.jobs, "promote", fail)
    with pytest.raises(WorkerBroken, match="unforeseen"):
        await asyncio.wait_for(running, LIMIT)

    await work.assert_given_back()


@pytest.mark.parametrize("verb", ["claim", "finish"])
async def test_a_worker_broken_by_a_call_does_not_wait_for_its_answer(work: Work, monkeypatch, caplog, verb):
    backend = await work.app.opened()
    real = getattr(backend.jobs, verb)
    calls: list[str] = []

    async def fail_once(argument: Any, **options: Any) -> Any:
        calls.append(verb)
        if len(calls) == 1:
            raise ValueError("unforeseen")
        return await real(argument, **options)

    _, running = await work.begin(flush_after=0.3)
    monkeypatch.setattr(backend.jobs, verb, fail_once)
    with pytest.raises(WorkerBroken, match="unforeseen"):
        await asyncio.wait_for(running, 2)

    assert "this worker ends with" not in caplog.text
    await work.assert_given_back()


async def test_a_cancelled_worker_without_its_store_ends_within_a_bound_and_its_leases_expire(
    tmp_path: Path, monkeypatch, caplog
):
    monkeypatch.setattr(worker_module, "_RELEASE_TIMEOUT", 0.2)
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}?synchronous=normal&busy_timeout=0.05")
    work = Work(app)
    _, running = await work.begin(abort_grace=0.05)
    with connected(path) as other, caplog.at_level(logging.WARNING, "holdfast"):
        other.execute("begin immediate")
        began = time.monotonic()
        running.cancel()
        await over(running)
        assert time.monotonic() - began < 4  # seconds; with the usual timeouts more than five
        other.execute("rollback")

    assert f"this worker ends with {ENDED + 1} unreleased jobs; their leases will expire" in caplog.text
    assert len(await app.leases()) == ENDED + 1
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-keeper"]
    await app.close()


async def test_a_thread_that_is_left_behind_sees_that_its_lease_is_lost(file_app: App):
    began, told = threading.Event(), threading.Event()

    @file_app.task
    def stubborn(ctx: Context) -> None:
        began.set()
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if ctx.lease_lost.is_set():
                told.set()
                return
            time.sleep(0.005)

    job = await stubborn.enqueue()
    worker = file_app.worker(**QUICK, abort_grace=0.1)
    running = asyncio.create_task(worker.run())
    assert await asyncio.to_thread(began.wait, LIMIT)
    worker.stop()
    worker.stop()
    assert await asyncio.wait_for(running, LIMIT) == Exit.RELEASED

    assert await job.state() is JobState.READY
    assert await asyncio.to_thread(told.wait, 2.0)


async def test_what_a_worker_leaves_behind_in_a_transaction_is_left_to_expire_and_not_taken_as_lost(
    file_app: App, tmp_path: Path
):
    is_completing, go_on = threading.Event(), threading.Event()

    @file_app.task
    def charge(ctx: Context) -> None:
        with connected(tmp_path / "jobs.db") as connection:
            connection.execute("begin immediate")
            ctx.sync.complete(using=connection)
            connection.execute("rollback")  # it could as well be about to commit: nobody knows
            is_completing.set()
            go_on.wait(LIMIT)

    job = await charge.enqueue()
    worker = file_app.worker(**QUICK, abort_grace=0.1)
    running = asyncio.create_task(worker.run())
    assert await asyncio.to_thread(is_completing.wait, LIMIT)
    worker.stop()
    worker.stop()
    assert await asyncio.wait_for(running, LIMIT) == Exit.RELEASED
    try:
        assert worker.status().totals.abandoned == 1
        assert [lease.job_id for lease in await file_app.leases()] == [job.id]
        assert not (await job.details()).attempts
    finally:
        go_on.set()


async def test_a_worker_claims_nothing_before_the_store_has_heard_of_it(file_app: App, monkeypatch):
    backend = await file_app.opened()
    is_opening, go_on = threading.Event(), threading.Event()
    claims: list[int] = []
    extender, claim = backend.extender, backend.jobs.claim

    def slow() -> Any:
        is_opening.set()
        go_on.wait(LIMIT)
        return extender()

    async def counted(request: ClaimRequest) -> Claim:
        claims.append(len(await file_app.workers()))
        return await claim(request)

    monkeypatch.setattr(backend, "extender", slow)
    monkeypatch.setattr(backend.jobs, "claim", counted)

    @file_app.task
    async def quick() -> None: ...

    job = await quick.enqueue()
    async with working(file_app):
        assert await asyncio.to_thread(is_opening.wait, LIMIT)
        for _ in range(20):
            await asyncio.sleep(0)
        assert claims == []
        go_on.set()
        await ended(job)

    assert set(claims) == {1}, "on the list whenever it claimed"


async def test_a_worker_cancelled_before_the_store_has_heard_of_it_ends_with_nothing_held(file_app: App, monkeypatch):
    backend = await file_app.opened()
    is_opening, go_on = threading.Event(), threading.Event()
    extender = backend.extender

    def slow() -> Any:
        is_opening.set()
        go_on.wait(LIMIT)
        return extender()

    monkeypatch.setattr(backend, "extender", slow)

    @file_app.task
    async def quick() -> None: ...

    job = await quick.enqueue()
    running = asyncio.create_task(file_app.worker(**QUICK).run())
    assert await asyncio.to_thread(is_opening.wait, LIMIT)
    running.cancel()
    threading.Timer(0.05, go_on.set).start()  # the loop itself waits for the extending thread to end
    await over(running)

    assert await job.state() is JobState.READY
    assert await file_app.leases() == []
