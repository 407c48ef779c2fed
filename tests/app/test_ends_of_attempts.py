"""How attempts end when something else happens in the same moment."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.app.work import LIMIT, QUICK, connected, run_all, working

from holdfast import App, ConfigError, Context, JobState
from holdfast.app.tasks import TaskHandle
from holdfast.hooks.middleware import Middlewares
from holdfast.hooks.observers import Hooks
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed, Outcome, Retried
from holdfast.store.backend import Backend
from holdfast.store.jobs import JobStore
from holdfast.testing.conformance.base import claim
from holdfast.worker.attempt_reports import AttemptReports
from holdfast.worker.attempts import RUNNING, Attempts
from holdfast.worker.decision import Why
from holdfast.worker.execution import plan_for
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.job_child.pool import ChildPool

LEASE = timedelta(seconds=30)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - there is none
            await asyncio.sleep(0.002)


# --- a coroutine that nobody awaits ----------------------------------------------------------------------------------


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as people write it: it forgets that what it wraps may be async."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def test_a_plain_wrapper_around_an_async_handler_is_a_failed_attempt_with_the_remedy(app: App):
    ran: list[int] = []

    @app.task(max_attempts=1)
    @logged
    async def send(n: int) -> None:
        ran.append(n)

    job = await send.enqueue(n=1)
    await run_all(app)

    details = await job.details()
    assert (details.job.state, ran) == (JobState.FAILED, [])
    assert details.attempts[0].error_class == "holdfast.errors.ConfigError"
    assert "returned a coroutine that was never awaited" in str(details.attempts[0].message)
    assert "an `async def` that awaits it" in str(details.attempts[0].message)


@pytest.mark.parametrize("timeout", [None, 5], ids=["driven at once", "in a task"])
async def test_an_async_handler_that_returns_a_coroutine_has_not_done_its_work_either(app: App, timeout):
    ran: list[int] = []

    async def work(n: int) -> None:
        ran.append(n)

    @app.task(max_attempts=1, timeout=timeout)
    async def send(n: int):
        return work(n)

    job = await send.enqueue(n=1)
    await run_all(app)

    assert (await job.state(), ran) == (JobState.FAILED, [])


def _counted(n: int):
    yield n


async def _counted_later(n: int):
    yield n


@pytest.mark.parametrize("timeout", [None, 5], ids=["driven at once", "in a task"])
@pytest.mark.parametrize("made", [_counted, _counted_later])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_that_returns_a_generator_has_not_done_its_work(app: App, timeout, made, is_async):
    def send(n: int):
        return made(n)

    async def send_async(n: int):
        return made(n)

    task = app.task(max_attempts=1, timeout=timeout)(send_async if is_async else send)
    job = await task.enqueue(n=1)
    await run_all(app)

    details = await job.details()
    assert details.job.state is JobState.FAILED
    assert "generator that was never iterated" in str(details.attempts[0].message)


# --- the end of the handler, while the store is asked whether its transaction has committed --------------------------


class Question:
    """`verify`, kept back until the test lets it go on."""

    def __init__(self, jobs: JobStore, patch: pytest.MonkeyPatch) -> None:
        self.is_asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._verify = jobs.verify
        patch.setattr(jobs, "verify", self._ask)

    async def _ask(self, lease: Any) -> Any:
        self.is_asked.set()
        await self.go_on.wait()
        return await self._verify(lease)


def completing(app: App, path: Path, how: str, **options: Any) -> TaskHandle[..., Any]:
    @app.task(**options)
    async def charge(ctx: Context) -> None:
        with connected(path) as connection:
            connection.execute("begin immediate")
            await ctx.complete(using=connection)
            connection.execute(how)

    return charge


class Bench:
    """Attempts without a worker around them."""

    def __init__(self, backend: Backend, handle: TaskHandle[..., Any]) -> None:
        self.ends: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self.broken: list[BaseException] = []
        held = HeldLeases(lease=30.0, extend_at=0.5)
        self.attempts = Attempts(
            backend,
            held,
            {handle.task.name: plan_for(handle.task)},
            context=lambda job: Context(job, backend, lease=LEASE, keeper=held.of(job)),
            children=ChildPool(lease=LEASE, limit=1),
            ended=lambda job, outcome: self.ends.put_nowait(outcome),
            broke=self.broken.append,
            reports=AttemptReports(Hooks(), "bench"),
            middleware=Middlewares(),
        )

    async def end(self) -> Outcome | None:
        return await asyncio.wait_for(self.ends.get(), LIMIT)


@pytest.fixture
async def backend(file_app: App) -> Backend:
    return await file_app.opened()


async def claimed(backend: Backend, handle: TaskHandle[..., Any]) -> LeasedJob:
    await handle.enqueue()
    (job,) = await claim(backend, 1, tasks=[handle.task.name])
    return job


@pytest.mark.parametrize("why", Why)
@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_an_abort_after_the_handler_has_ended_does_not_lose_its_end(
    file_app: App, backend: Backend, tmp_path, monkeypatch, how, why
):
    charge = completing(file_app, tmp_path / "jobs.db", how, timeout=20)
    question = Question(backend.jobs, monkeypatch)
    bench = Bench(backend, charge)
    job = await claimed(backend, charge)
    assert bench.attempts.begin(job, 0.0) is RUNNING
    await question.is_asked.wait()

    assert bench.attempts.limits == {}, "no handler runs that could be stuck past its limit"
    assert bench.attempts._ending, "it is not over before the store has answered"
    bench.attempts.abort(job, why)
    question.go_on.set()
    outcome = await bench.end()

    assert outcome is None if how == "commit" else isinstance(outcome, Retried)
    await until(lambda: not bench.attempts._ending)
    assert bench.ends.empty()
    await bench.attempts.close()


async def test_the_time_limit_of_a_handler_in_a_thread_is_over_with_its_end(file_app: App, backend: Backend):
    may_end = threading.Event()

    @file_app.task(timeout=20)
    def quick() -> None:
        may_end.wait()

    bench = Bench(backend, quick)
    bench.attempts.begin(await claimed(backend, quick), 0.0)
    await until(lambda: len(bench.attempts.limits) == 1)
    may_end.set()

    assert await bench.end() == Completed()
    assert bench.attempts.limits == {}
    await bench.attempts.close()


async def test_a_worker_told_to_give_everything_back_hears_of_the_end_of_a_handler_that_has_just_completed_its_job(
    file_app: App, backend: Backend, tmp_path, monkeypatch
):
    job = await completing(file_app, tmp_path / "jobs.db", "commit").enqueue()
    question = Question(backend.jobs, monkeypatch)
    async with working(file_app, abort_grace=1.0) as worker:
        await question.is_asked.wait()
        worker.stop()
        worker.stop()
        await until(lambda: worker.status().phase == "releasing")
        await asyncio.sleep(0)
        question.go_on.set()

    status = worker.status()
    assert (status.phase, status.running, status.totals.abandoned) == ("ended", (), 0)
    assert (status.totals.completed, status.totals.released) == (1, 0)
    assert await job.state() is JobState.COMPLETED
    assert await file_app.leases() == []


async def test_a_lease_lost_after_a_completion_that_was_rolled_back_is_counted_as_lost(
    file_app: App, backend: Backend, tmp_path
):
    @file_app.task
    async def charge(ctx: Context) -> None:
        with connected(tmp_path / "jobs.db") as connection:
            connection.execute("begin immediate")
            await ctx.complete(using=connection)
            connection.execute("rollback")
        await file_app.queues.pause("default")  # so that nobody claims it anew
        await file_app.jobs.reset(ctx.job.id)

    job = await charge.enqueue()
    async with working(file_app) as worker:
        await until(lambda: worker.status().totals.lost > 0)

    assert (worker.status().totals.lost, worker.status().totals.completed) == (1, 0)
    assert await job.state() is JobState.READY


# --- what a handler leaves behind ------------------------------------------------------------------------------------


async def test_a_transaction_that_outlives_its_handler_does_not_break_the_worker(
    file_app: App, backend: Backend, monkeypatch
):
    behind: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()
    finish = backend.jobs.finish

    async def answer_late(finishes: Any, *, briefly: bool) -> Any:
        verdicts = await finish(finishes, briefly=briefly)
        await asyncio.gather(*behind)  # the answer finds the job settled
        return verdicts

    monkeypatch.setattr(backend.jobs, "finish", answer_late)

    @file_app.task
    async def charge(ctx: Context) -> None:
        is_inside = asyncio.Event()

        async def late() -> None:
            async with ctx.transaction():
                is_inside.set()
                await go_on.wait()

        behind.append(asyncio.create_task(late()))
        await is_inside.wait()

    job = await charge.enqueue()
    worker = file_app.worker(**QUICK, until_empty=True)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.status().buffered == 1)  # its finish waits for the write lock
    go_on.set()
    await asyncio.wait_for(running, LIMIT)

    assert await job.state() is JobState.COMPLETED
    assert (worker.status().totals.completed, worker.status().totals.lost) == (1, 0)


async def test_a_former_attempt_that_ends_late_does_not_touch_the_hold_of_the_next(file_app: App, backend: Backend):
    @file_app.task
    async def charge(ctx: Context) -> None: ...

    former = await claimed(backend, charge)
    later = msgspec.structs.replace(former, fence=former.fence + 1)
    holdings = HeldLeases(lease=30.0, extend_at=0.5)
    holdings.add([former], 0.0)
    ghost = Context(former, backend, lease=LEASE, keeper=holdings.of(former))
    holdings.add([later], 1.0)
    Context(later, backend, lease=LEASE, keeper=holdings.of(later))._effect.committing()
    ghost.uncompleted()

    assert holdings.settling_seqs == {later.seq}


# --- a transaction inside a transaction ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_a_transaction_inside_a_transaction_is_refused_at_once_and_the_outer_one_goes_on(app: App, how):
    refused: list[tuple[str, float]] = []

    if how == "async":

        @app.task(name="charge")
        async def charge(ctx: Context) -> None:
            async with ctx.transaction():
                began = time.monotonic()
                with pytest.raises(ConfigError) as error:
                    async with ctx.transaction():
                        pass
                refused.append((str(error.value), time.monotonic() - began))
                ctx.result = "outer"

    else:

        @app.task(name="charge")
        def charge(ctx: Context) -> None:
            with ctx.sync.transaction():
                began = time.monotonic()
                with pytest.raises(ConfigError) as error, ctx.sync.transaction():
                    pass
                refused.append((str(error.value), time.monotonic() - began))
                ctx.result = "outer"

    job = await charge.enqueue()
    await run_all(app)

    ((message, lasted),) = refused
    assert "a transaction is open here already" in message
    assert lasted < 1
    assert await job.result(str) == "outer"
