"""`async with app.working(): …`: a worker beside a producer or a web application, on both stores."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.capability import needs
from tests.app.stream_work import QUICK as QUICK_TIMING
from tests.app.stream_work import append, drained, eventually
from tests.app.work import LIMIT, QUICK, ended

from holdfast import App, ConfigError, Event, JobState, StoreUnavailable, WorkerBroken


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


@pytest.fixture
def events(app: App) -> dict[str, asyncio.Event]:
    """A task `hold`, which runs from `begun` until `may_end`."""
    events = {"begun": asyncio.Event(), "may_end": asyncio.Event()}

    @app.task
    async def hold() -> str:
        events["begun"].set()
        await events["may_end"].wait()
        return "done"

    return events


async def break_worker(app: App) -> None:
    """Let the next claim fail with an error that no worker expects."""

    def claim(*_: Any) -> Any:
        raise ZeroDivisionError("broken on purpose")

    app.backend.jobs.claim = claim  # type: ignore[method-assign, assignment]
    await app.wake()


async def test_the_jobs_of_a_producer_are_run_beside_it_and_start_and_end_are_logged(app: App, caplog):
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    with caplog.at_level(logging.INFO, "holdfast.worker"):
        async with app.working(concurrency=32, **QUICK):
            jobs = await double.enqueue_many([{"number": number} for number in range(5)])
            assert [await ended(job) for job in jobs] == [JobState.COMPLETED] * 5

    first, last = caplog.messages[0], caplog.messages[-1]
    worker_id = re.fullmatch(r"worker (\S+) is running on \S+", first)
    assert worker_id is not None
    assert last == f"worker {worker_id[1]} has ended: 5 completed"
    assert await app.workers() == []


async def test_the_consumers_of_the_app_run_too(app: App):
    needs(app, "keep streams")
    seen: list[int] = []

    @app.consumer("billing", category="orders")
    async def billing(event: Event) -> None:
        seen.append(event.version)

    await append(app, "a", 3)
    async with app.working(timing=QUICK_TIMING):
        await eventually(drained(app))
    assert seen == [1, 2, 3]
    assert await app.nodes() == []


async def test_the_end_of_the_block_lets_running_handlers_end(app: App, events):
    async with app.working(**QUICK):
        job = await app.enqueue("hold")
        await asyncio.wait_for(events["begun"].wait(), LIMIT)
        asyncio.get_running_loop().call_later(0.2, events["may_end"].set)
    assert await job.state() is JobState.COMPLETED


async def test_a_worker_that_breaks_cancels_the_block_and_its_error_is_raised(app: App, events, caplog):
    reached: list[str] = []
    with pytest.raises(WorkerBroken, match="ZeroDivisionError: broken on purpose"):  # noqa: PT012
        async with app.working(**QUICK):
            await break_worker(app)
            try:
                await asyncio.sleep(LIMIT)
                reached.append("the end of the block")
            finally:
                reached.append("its cleanup")
    assert reached == ["its cleanup"]
    assert "broken on purpose" in caplog.text
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation is left over


async def test_a_block_that_suppresses_its_cancellation_ends_with_the_error_of_the_worker(app: App, events):
    with pytest.raises(WorkerBroken):  # noqa: PT012
        async with app.working(**QUICK):
            await break_worker(app)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LIMIT)
    await asyncio.sleep(0)


async def test_an_error_of_the_block_is_raised_after_the_drain(app: App, events):
    with pytest.raises(LookupError, match="mine"):  # noqa: PT012
        async with app.working(**QUICK):
            job = await app.enqueue("hold")
            await asyncio.wait_for(events["begun"].wait(), LIMIT)
            events["may_end"].set()
            raise LookupError("mine")
    assert await job.state() is JobState.COMPLETED
    async with app.working(**QUICK):  # and it can begin again
        pass


async def test_a_cancelled_block_drains_and_a_second_cancellation_releases_what_runs(app: App, events):
    async def serve() -> None:
        async with app.working(**QUICK, abort_grace=0.2):
            await asyncio.sleep(LIMIT)

    serving = asyncio.create_task(serve())
    job = await app.enqueue("hold")
    await asyncio.wait_for(events["begun"].wait(), LIMIT)
    serving.cancel()
    done, _ = await asyncio.wait([serving], timeout=0.3)
    assert not done  # it drains: the handler may end
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, LIMIT)
    assert await job.state() is JobState.READY
    assert await app.workers() == []


async def test_a_cancelled_block_is_cancelled_though_its_handlers_ended_in_time(app: App, events):
    async def serve() -> None:
        async with app.working(**QUICK):
            await asyncio.sleep(LIMIT)

    serving = asyncio.create_task(serve())
    job = await app.enqueue("hold")
    await asyncio.wait_for(events["begun"].wait(), LIMIT)
    serving.cancel()
    events["may_end"].set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, LIMIT)
    assert await job.state() is JobState.COMPLETED


async def test_the_timeout_of_the_caller_is_a_timeout(app: App, events):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), app.working(**QUICK):
            await asyncio.sleep(LIMIT)


async def test_a_second_block_of_the_same_app_is_refused_and_the_first_goes_on(app: App, events):
    first = app.working(**QUICK)
    async with first:
        with pytest.raises(ConfigError, match=r"in an app\.working\(\) block already: leave that block first"):
            async with app.working():
                pass
        with pytest.raises(ConfigError, match="entered before"):
            await first.__aenter__()
        events["may_end"].set()
        assert await ended(await app.enqueue("hold")) is JobState.COMPLETED


async def test_invalid_settings_are_refused_at_the_call(app: App, events):
    with pytest.raises(ConfigError, match="did you mean concurrency"):
        app.working(concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match="concurrency=0"):
        app.working(concurrency=0)
    with pytest.raises(ConfigError, match="runs in async code"):
        app.sync.working()


async def test_a_store_that_is_away_at_the_start_refuses_the_block(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/missing/jobs.db")

    @app.task
    def greet() -> None: ...

    entered = False
    with pytest.raises(StoreUnavailable):
        async with app.working():
            entered = True
    assert not entered
    (tmp_path / "missing").mkdir()
    async with app, app.working():  # nothing of the first try is left
        assert await ended(await greet.enqueue()) is JobState.COMPLETED


async def test_the_lifespan_of_a_web_application_ends_with_the_error_of_its_worker(app: App, events):
    """As Starlette and FastAPI run it: a task of its own enters the lifespan, and waits inside for the shutdown."""

    @contextlib.asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        async with app.working(**QUICK):
            yield

    sent: list[str] = []
    started = asyncio.Event()

    async def router() -> None:
        try:
            async with lifespan(None):
                sent.append("lifespan.startup.complete")
                started.set()
                await asyncio.Event().wait()
        except BaseException as error:
            sent.append(f"lifespan.shutdown.failed: {type(error).__name__}")
            raise

    serving = asyncio.create_task(router())
    await asyncio.wait_for(started.wait(), LIMIT)
    await break_worker(app)
    with pytest.raises(WorkerBroken):
        await asyncio.wait_for(serving, LIMIT)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.failed: WorkerBroken"]
