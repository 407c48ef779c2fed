"""A job in the hands of whoever asked for it."""

from __future__ import annotations

import asyncio

import pytest
from tests.app.work import LIMIT, ended, run_all, working

from holdfast import App, Context, JobCancelled, JobNotFound, JobState
from holdfast.store.values import Cancellation


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def begun() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def waits(app: App, gate: asyncio.Event, begun: asyncio.Event):
    @app.task
    async def waits(answer: int) -> int:
        begun.set()
        await gate.wait()
        return answer

    return waits


async def test_a_handle_follows_its_job_from_ready_to_completed(app, waits, gate, begun):
    job = await waits.enqueue(answer=42)
    assert await job.state() is JobState.READY
    with pytest.raises(TimeoutError, match=f"^job {job.id} is ready, and has not ended yet$"):
        await job.result(timeout=0)

    async with working(app):
        await begun.wait()
        assert await job.state() is JobState.RUNNING
        with pytest.raises(TimeoutError):
            await job.wait(0.05)
        gate.set()
        assert await ended(job) is JobState.COMPLETED

    assert await job.result() == 42
    assert await job.result(int) == 42
    assert (await job.details()).lease is None


async def test_a_handle_found_by_its_id_is_as_good(app, waits, gate):
    gate.set()
    job = await waits.enqueue(answer=1)
    found = app.job(job.id.upper())
    await run_all(app)

    assert await found.wait(LIMIT) is JobState.COMPLETED
    assert await found.result() == 1
    assert repr(found) == f"<job {job.id}>"


async def test_a_job_that_never_was_is_not_found(app):
    for call in ("state", "details", "cancel", "wait", "result"):
        with pytest.raises(JobNotFound):
            await getattr(app.job("0190a8c0-0000-7000-8000-000000000001"), call)()


async def test_a_job_that_has_not_begun_is_cancelled_for_good(app, waits, gate):
    gate.set()
    job = await waits.enqueue(answer=1)

    assert await job.cancel("no longer needed") is Cancellation.CANCELLED
    assert await job.cancel() is Cancellation.TOO_LATE
    await waits.enqueue(answer=2)
    await run_all(app)

    assert await job.wait(1) is JobState.CANCELLED
    assert (await job.details()).job.reason == "no longer needed"
    with pytest.raises(JobCancelled, match="was cancelled: no longer needed") as error:
        await job.result()
    assert (error.value.job_id, error.value.task, error.value.reason) == (job.id, "waits", "no longer needed")


async def test_a_running_job_is_asked_and_its_handler_is_cancelled(app, waits, begun):
    job = await waits.enqueue(answer=1)
    async with working(app):
        await begun.wait()
        assert await job.cancel("stop it") is Cancellation.ASKED
        assert await ended(job) is JobState.CANCELLED

    assert await job.cancel() is Cancellation.TOO_LATE


async def test_a_handler_may_complete_though_a_cancel_was_asked(app: App):
    begun = asyncio.Event()

    @app.task
    async def stubborn(ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancel_asked
        return "done all the same"

    job = await stubborn.enqueue()
    async with working(app):
        await begun.wait()
        await job.cancel()
        assert await ended(job) is JobState.COMPLETED
    assert await job.result() == "done all the same"


async def test_waiting_ends_at_once_when_the_job_has_ended_before(app, waits, gate):
    gate.set()
    job = await waits.enqueue(answer=1)
    await run_all(app)

    assert await job.wait(0.5) is JobState.COMPLETED


async def test_many_may_wait_for_one_job(app, waits, gate, begun):
    job = await waits.enqueue(answer=1)
    async with working(app):
        waiting = [asyncio.create_task(app.job(job.id).wait(LIMIT)) for _ in range(20)]
        await begun.wait()
        gate.set()
        assert set(await asyncio.gather(*waiting)) == {JobState.COMPLETED}


async def test_who_has_waited_too_long_is_told_where_the_job_stands(app, waits, gate, begun):
    job = await waits.enqueue(answer=1)
    with pytest.raises(TimeoutError, match=f"^job {job.id} is still ready after 0.05 s$"):
        await job.wait(0.05)

    async with working(app):
        await begun.wait()
        with pytest.raises(TimeoutError, match=f"^job {job.id} is still running after 0.05 s$"):
            await job.wait(0.05)
        gate.set()
