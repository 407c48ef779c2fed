"""What a handler may ask of its surroundings."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sqlite3
import threading
from typing import Any

import pytest
from tests.app.work import ended, run_all, working

from holdfast import App, ConfigError, Context, JobState, LeaseLost


async def test_progress_is_seen_while_the_job_runs(app: App):
    reported, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def works(ctx: Context) -> None:
        await ctx.progress(50, "half\0way")
        await ctx.progress(note="still half")
        await ctx.progress(75)
        reported.set()
        await go_on.wait()

    job = await works.enqueue()
    async with working(app, worker_id="tester"):
        await reported.wait()
        (lease,) = await app.leases()
        assert (lease.job_id, lease.percent, lease.note) == (job.id, 75, "still half")
        assert lease.worker_id.startswith("tester.")
        details = await job.details()
        assert details.lease is not None
        assert details.lease.percent == 75
        go_on.set()
        await ended(job)

    assert await app.leases() == []


async def test_extend_makes_the_lease_longer_and_never_shorter(app: App):
    seen: list[float] = []

    async def left(ctx: Context) -> float:
        (lease,) = await app.leases()
        return lease.expires_in.total_seconds()

    @app.task
    async def works(ctx: Context) -> None:
        await ctx.extend(120)
        seen.append(await left(ctx))
        await ctx.extend()
        seen.append(await left(ctx))
        await ctx.extend(1)
        seen.append(await left(ctx))

    await works.enqueue()
    await run_all(app, lease=5)

    assert all(115 < seconds <= 120 for seconds in seen)


async def test_a_handler_whose_lease_is_taken_away_is_told_and_stopped_and_the_next_attempt_completes(app: App):
    begun = asyncio.Event()
    ends: list[tuple[int, bool, str]] = []
    fences: list[int] = []

    @app.task
    async def works(ctx: Context) -> None:
        fences.append(ctx.fence)
        if ctx.job.attempt > 1:
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await ctx.progress(99)
            except LeaseLost as error:
                ends.append((ctx.job.attempt, bool(ctx.lease_lost), str(error)))
            raise

    job = await works.enqueue()
    async with working(app, lease=1.0):
        await begun.wait()
        assert await app.jobs.reset(job.id)
        assert await ended(job) is JobState.COMPLETED
        while not ends:  # noqa: ASYNC110 - the extending thread finds out in its own time
            await asyncio.sleep(0.02)

    ((attempt, told, text),) = ends
    assert (attempt, told) == (1, True)
    assert "Nothing was written" in text
    assert fences[1] > fences[0]
    assert [item.outcome for item in (await job.details()).attempts] == ["released"]


async def test_a_handler_in_a_thread_sees_the_signals(app: App):
    begun: dict[str, threading.Event] = {"lease": threading.Event(), "cancel": threading.Event()}
    told: dict[str, bool] = {}

    @app.task
    def works(ctx: Context, what: str) -> None:
        if ctx.job.attempt > 1:
            return
        begun[what].set()
        signal = ctx.lease_lost if what == "lease" else ctx.cancel_asked
        told[what] = signal.wait_blocking(10)

    reset = await works.enqueue(what="lease")
    cancelled = await works.enqueue(what="cancel")
    async with working(app, lease=1.0):
        for event in begun.values():
            await asyncio.to_thread(event.wait, 10)
        await app.jobs.reset(reset.id)
        await cancelled.cancel()
        assert await ended(reset) is JobState.COMPLETED
        assert await ended(cancelled) in {JobState.COMPLETED, JobState.CANCELLED}
        while len(told) < 2:  # noqa: ASYNC110 - threads end in their own time
            await asyncio.sleep(0.02)

    assert told == {"lease": True, "cancel": True}


async def test_a_coroutine_can_wait_for_a_cancel(app: App):
    begun = asyncio.Event()

    @app.task
    async def works(ctx: Context) -> bool:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # the worker cancels the handler as it sets the signal
            await ctx.cancel_asked.wait()
        return ctx.cancel_asked.is_set()

    job = await works.enqueue()
    async with working(app):
        await begun.wait()
        await job.cancel()
        await ended(job)

    assert await job.result() is True


async def test_a_thread_handler_reports_extends_and_returns(app: App):
    seen: list[Any] = []

    @app.task
    def works(ctx: Context, n: int) -> int:
        ctx.sync.progress(10, "begun")
        ctx.sync.extend(100)
        seen.append((threading.current_thread().name, ctx.job.attempt, ctx.fence > 0))
        return n * 2

    job = await works.enqueue(n=21)
    await run_all(app)

    assert await job.result() == 42
    ((name, attempt, fenced),) = seen
    assert name.startswith("holdfast-handler")
    assert (attempt, fenced) == (1, True)


async def test_thread_handlers_run_side_by_side(app: App):
    meet = threading.Barrier(3)

    @app.task
    def meets() -> None:
        meet.wait(10)

    jobs = await meets.enqueue_many([()] * 3)
    await run_all(app, concurrency=3)

    assert [await job.state() for job in jobs] == [JobState.COMPLETED] * 3


@pytest.mark.parametrize("where", ["at once", "in a task", "in a thread"])
async def test_context_variables_of_one_attempt_are_not_seen_by_the_next_but_those_of_the_worker_are(app: App, where):
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    variable.set(1)
    seen: list[int] = []

    def works() -> None:
        seen.append(variable.get())
        variable.set(7)

    async def works_at_once() -> None:
        works()

    async def works_in_a_task() -> None:
        works()
        await asyncio.sleep(0)

    handler = {"at once": works_at_once, "in a task": works_in_a_task, "in a thread": works}[where]
    await app.task(name="works")(handler).enqueue_many([()] * 3)
    await run_all(app, concurrency=1)

    assert (seen, variable.get()) == ([1, 1, 1], 1)


async def test_headers_and_the_job_are_in_reach_of_the_handler(app: App):
    seen: list[Any] = []

    @app.task
    async def works(ctx: Context) -> None:
        seen.append((ctx.job.headers, ctx.job.task, ctx.job.queue, ctx.job.max_attempts, ctx.job.id))

    job = await works.options(headers={"tenant": "seven"}, queue="q", max_attempts=9).enqueue()
    await run_all(app)

    assert seen == [({"tenant": "seven"}, "works", "q", 9, job.id)]


async def test_setting_the_result_or_reporting_after_completion_is_refused(app: App):
    refused: list[str] = []

    @app.task
    async def works(ctx: Context) -> None:
        async with ctx.transaction():
            ctx.result = "kept"
        for late in (lambda: ctx.progress(1), ctx.extend, lambda: ctx.complete(using=None)):
            with pytest.raises(ConfigError) as caught:
                await late()
            refused.append(str(caught.value))
        with pytest.raises(ConfigError) as caught:
            ctx.result = "other"
        refused.append(str(caught.value))
        with pytest.raises(ConfigError) as caught:
            async with ctx.transaction():
                pass
        refused.append(str(caught.value))

    job = await works.enqueue()
    await run_all(app)

    assert await job.result(str) == "kept"
    assert len(refused) == 5
    assert all("is already completed by its own transaction: it is too late to" in text for text in refused)


async def test_a_context_that_declares_its_connection_is_filled_in(app: App):
    seen: list[Any] = []

    @app.task
    async def works(ctx: Context[sqlite3.Connection], n: int) -> int:
        seen.append(ctx.job.task)
        return n

    job = await works.enqueue(7)
    await run_all(app)

    assert seen == ["works"]
    assert await job.result() == 7
