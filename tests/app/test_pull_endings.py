"""Ends that a caller gives to jobs by mistake, too late, in the wrong place, or without knowing their task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import App, ClaimedJob, ConfigError, JobState


@pytest.fixture
async def orders(app: App) -> Callable[[int], Awaitable[list[ClaimedJob]]]:
    """Claim so many orders that were enqueued for it."""

    @app.task(queue="orders", max_attempts=2)
    async def order(n: int) -> None: ...

    async def claimed(count: int) -> list[ClaimedJob]:
        await order.enqueue_many([{"n": n} for n in range(count)])
        return await app.claim("orders", count)

    return claimed


async def state(app: App, job: ClaimedJob) -> JobState:
    return await app.job(job.id).state()


# --- inside another transaction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["batch", "transaction"])
async def test_a_batch_inside_an_open_transaction_is_refused_at_once(app: App, orders, outer: str):
    first, second = await orders(2)
    block: Any = app.batch([first]) if outer == "batch" else first.context().transaction()
    began = time.monotonic()
    with pytest.raises(ConfigError, match="a transaction is open here already"):
        async with block, app.batch([second]) as batch:
            batch.complete(second)

    assert time.monotonic() - began < 3, "it must not wait for itself"
    assert [await state(app, job) for job in (first, second)] == [JobState.RUNNING] * 2


@pytest.mark.parametrize("outer", ["batch", "transaction"])
async def test_a_blocking_batch_inside_an_open_transaction_is_refused_at_once(app: App, orders, outer: str):
    first, second = await orders(2)

    def work() -> None:
        block: Any = app.sync.batch([first]) if outer == "batch" else first.sync.context().sync.transaction()
        with block, app.sync.batch([second]) as batch:
            batch.complete(second)

    began = time.monotonic()
    with pytest.raises(ConfigError, match="a transaction is open here already"):
        await asyncio.to_thread(work)

    assert time.monotonic() - began < 3, "it must not wait for itself"
    assert [await state(app, job) for job in (first, second)] == [JobState.RUNNING] * 2


# --- after the end of the block ---------------------------------------------------------------------------------------


def note_each_way(batch: Any, job: ClaimedJob) -> None:
    for note in (
        lambda: batch.complete(job),
        lambda: batch.retry(job, "no luck"),
        lambda: batch.fail(job, "given up"),
    ):
        with pytest.raises(ConfigError, match=r"inside the `with` block.*await job\.complete\(\)"):
            note()


async def test_an_end_that_is_noted_after_the_block_is_refused_and_told_how_to_be_written(app: App, orders):
    jobs = await orders(2)
    async with app.batch(jobs) as batch:
        batch.complete(jobs[0])

    note_each_way(batch, jobs[1])
    assert await state(app, jobs[1]) is JobState.RUNNING


async def test_an_end_that_is_noted_after_a_block_that_was_rolled_back_is_refused_too(app: App, orders):
    (job,) = await orders(1)
    with pytest.raises(ValueError, match="half-way"):
        async with app.batch([job]) as batch:
            raise ValueError("half-way")

    note_each_way(batch, job)
    await job.complete()


async def test_an_end_that_is_noted_after_a_blocking_block_is_refused_too(app: App, orders):
    jobs = await orders(2)

    def work() -> None:
        with app.sync.batch(jobs) as batch:
            batch.complete(jobs[0])
        note_each_way(batch, jobs[1])

    await asyncio.to_thread(work)
    assert await state(app, jobs[0]) is JobState.COMPLETED


# --- of a task that the app does not know -----------------------------------------------------------------------------


@pytest.fixture
async def stranger(file_app: App) -> ClaimedJob:
    """A job of a task that only the program that enqueued it knows, held by an app without tasks."""

    @file_app.task(queue="orders", max_attempts=2)
    async def foreign(n: int) -> None: ...

    await foreign.enqueue(n=1)
    other = App(file_app.backend.full_url)
    (held,) = await other.claim("orders", tasks=["foreign"])
    await other.close()
    return ClaimedJob(other, held.job, held.span)


@pytest.mark.parametrize("how", ["held", "batch"])
async def test_a_job_of_an_unknown_task_is_retried_by_the_default_policy(file_app: App, stranger: ClaimedJob, how: str):
    other = stranger._app
    async with other:
        if how == "held":
            await stranger.retry(ValueError("declined"))
        else:
            async with other.batch([stranger]) as batch:
                batch.retry(stranger, ValueError("declined"))

    details = await file_app.jobs.show(stranger.id)
    assert details.job.state is JobState.SCHEDULED
    assert [(attempt.outcome, attempt.message) for attempt in details.attempts] == [("retried", "declined")]


# --- a completion beside that of the block ----------------------------------------------------------------------------


async def test_completing_a_job_inside_its_own_transaction_is_told_for_what_it_is(app: App, orders):
    (job,) = await orders(1)
    context = job.context()
    with pytest.raises(ConfigError, match="leaving that block completes it too"):
        async with context.transaction():
            await job.complete()

    assert not context.lease_lost.is_set()
    assert await state(app, job) is JobState.RUNNING
    async with context.transaction():
        pass
    assert await state(app, job) is JobState.COMPLETED


async def test_completing_a_job_inside_its_own_blocking_transaction_is_told_for_what_it_is(app: App, orders):
    (job,) = await orders(1)

    def work() -> None:
        with job.sync.context().sync.transaction():
            job.sync.complete()

    with pytest.raises(ConfigError, match="leaving that block completes it too"):
        await asyncio.to_thread(work)
    assert await state(app, job) is JobState.RUNNING


# --- what is no error and no reason -----------------------------------------------------------------------------------


async def test_an_end_with_neither_an_exception_nor_a_text_is_refused(app: App, orders):
    (job,) = await orders(1)
    number: Any = 5
    for end in (lambda: job.fail(number), lambda: job.retry(number), lambda: job.retry(number, delay=1)):
        with pytest.raises(ConfigError, match="cannot be recorded: pass the exception, or a text"):
            await end()
    with pytest.raises(ConfigError, match="pass a text that says why"):
        await job.cancel(number)
    async with app.batch([job]) as batch:
        for note in (lambda: batch.fail(job, number), lambda: batch.retry(job, number)):
            with pytest.raises(ConfigError, match="cannot be recorded: pass the exception, or a text"):
                note()

    assert await state(app, job) is JobState.RUNNING
