"""The result of a job is awaited: it arrives soon after the end, and a thousand waits cost as little as one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.app.capability import needs
from tests.app.conftest import RELAXED
from tests.app.work import LIMIT, run_all, working

from holdfast import App, Context, HoldfastError, JobCancelled, JobFailed, JobHandle, JobState, TaskHandle
from holdfast.app import job_waits

ROOT = Path(__file__).parents[2]
WORKER = """
    import asyncio, sys, time
    from holdfast import App, Context

    app = App(sys.argv[1])

    @app.task
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return time.time()

    @app.task
    async def nap_in_transaction(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with ctx.transaction():
            ctx.result = time.time()

    print("ready", flush=True)
    sys.exit(app.run_worker(poll_interval=30))
"""


@pytest.fixture
def url(each_url: str) -> str:
    return each_url


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


@pytest.fixture
def looks(app: App, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of jobs in each statement that looked for the ends of jobs."""
    counted: list[int] = []
    states = app.backend.insight.states

    async def noted(job_ids):
        counted.append(len(job_ids))
        return await states(job_ids)

    monkeypatch.setattr(app.backend.insight, "states", noted)
    return counted


@contextmanager
def worker_process(url: str, tmp_path: Path) -> Iterator[None]:
    program = tmp_path / "worker.py"
    program.write_text(textwrap.dedent(WORKER))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, program, url], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


def _fails(app: App):
    @app.task(max_attempts=2, retry=0)
    async def fails(n: int) -> int:
        raise ValueError(f"bad number {n}")

    return fails


async def test_the_result_of_a_failed_job_raises_its_last_error(app: App):
    job = await _fails(app).enqueue(7)
    await run_all(app)

    with pytest.raises(JobFailed) as error:
        await job.result(timeout=LIMIT)

    assert isinstance(error.value, HoldfastError)
    assert (error.value.job_id, error.value.task, error.value.attempts) == (job.id, "fails", 2)
    assert (error.value.error_class, error.value.error_message) == ("ValueError", "bad number 7")
    assert str(error.value) == (
        f"job {job.id} (fails) failed at attempt 2 with ValueError: bad number 7; for all attempts and their "
        f"tracebacks: holdfast job show {job.id}"
    )


async def test_a_job_that_is_cancelled_while_it_is_awaited_raises_at_once(app: App):
    job = await _fails(app).enqueue(7)
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0)
    await job.cancel("not needed")

    with pytest.raises(JobCancelled, match="was cancelled: not needed"):
        await asyncio.wait_for(waiting, LIMIT)


async def test_a_wait_outlives_retries(app: App):
    tries: list[int] = []

    @app.task(retry=0)
    async def third_time_lucky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError
        return len(tries)

    async with working(app):
        assert await (await third_time_lucky.enqueue()).result(timeout=LIMIT) == 3


async def test_a_result_that_does_not_come_in_time_says_where_the_job_is(app: App):
    job = await _fails(app).options(delay=60).enqueue(7)
    with pytest.raises(TimeoutError, match=f"^job {job.id} is still scheduled after 0.2 s$"):
        await job.result(timeout=0.2)
    with pytest.raises(TimeoutError, match=f"^job {job.id} is scheduled, and has not ended yet$"):
        await job.result(timeout=0)


async def test_a_blocking_wait_returns_the_result(app: App):
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    job = await double.enqueue(21)
    async with working(app):
        assert await asyncio.to_thread(job.sync.result, timeout=LIMIT) == 42


async def test_a_thousand_waits_are_a_few_statements(app: App, looks: list[int]):
    gate, held = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits(n: int) -> int:
        held.set()
        await gate.wait()
        return n

    jobs = await waits.enqueue_many([waits.call(n) for n in range(1000)])
    waiting = [asyncio.create_task(job.result()) for job in jobs]
    async with working(app, concurrency=1000):
        await held.wait()
        await asyncio.sleep(1.2)
        quiet = len(looks)
        looks.clear()
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(*waiting), LIMIT) == list(range(1000))

    assert quiet <= 12  # at first, four times soon after, when jobs were claimed, and once a second
    assert len(looks) <= 60  # while a thousand jobs end
    assert max(looks) <= job_waits.MOST_AT_ONCE


async def test_more_waits_than_a_statement_takes_are_several_statements(
    app: App, looks: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job_waits, "MOST_AT_ONCE", 3)

    @app.task
    async def give(n: int) -> int:
        return n

    jobs = await give.enqueue_many([give.call(n) for n in range(10)])
    await run_all(app)

    assert await asyncio.gather(*(job.result() for job in jobs)) == list(range(10))
    assert sorted(looks) == [1, 3, 3, 3]


async def test_nothing_looks_when_nothing_waits_any_more(app: App, looks: list[int]):
    job = await _fails(app).enqueue(7)
    waiting = asyncio.create_task(job.result())
    while not looks:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0.02)
    looks.clear()

    await asyncio.sleep(1.2)

    assert looks == []


async def test_an_error_of_the_store_is_raised_by_every_wait_and_the_next_wait_begins_again(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    @app.task
    async def give(n: int) -> int:
        return n

    jobs = await give.enqueue_many([give.call(1), give.call(2)])
    await run_all(app)

    async def broken(job_ids):
        raise ConnectionError("the link is down")

    with monkeypatch.context() as patch:
        patch.setattr(app.backend.insight, "states", broken)
        found = await asyncio.gather(*(job.result() for job in jobs), return_exceptions=True)
    assert [type(error) for error in found] == [ConnectionError, ConnectionError]
    assert await asyncio.gather(*(job.result() for job in jobs)) == [1, 2]


@pytest.mark.parametrize("task", ["nap", "nap_in_transaction"])
async def test_the_end_of_a_job_in_another_process_is_notified_of(
    app: App, url: str, tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
):
    if task == "nap_in_transaction":
        needs(app, "join transactions")
    monkeypatch.setattr(job_waits, "_POLL_EVERY", 600.0)

    @app.task(name=task)
    async def nap(seconds: float) -> float:
        raise AssertionError("runs in the other process")

    with worker_process(url, tmp_path):
        await (await nap.enqueue(0.0)).result(timeout=LIMIT)
        for _ in range(5):
            job = await nap.enqueue(0.25)  # longer than the looks soon after the announcement
            ended_at = await job.result(timeout=LIMIT)
            assert ended_at <= time.time()


@pytest.mark.slow
async def test_a_result_arrives_within_20_ms_of_the_end(
    app: App, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The 95th percentile, from the handler's last statement to the result here, without any polling.

    A busy machine delays everything, so what a short sleep and a commit take beyond an idle one is allowed for. One of
    a few rounds must pass: a burst of load can hit the results and miss the comparison.
    """
    monkeypatch.setattr(job_waits, "_POLL_EVERY", 600.0)
    monkeypatch.setattr(job_waits, "_AFTER_ANNOUNCEMENT", ())

    @app.task
    async def nap(seconds: float) -> float:
        raise AssertionError("runs in the other process")

    rounds: list[tuple[float, float]] = []
    with worker_process(url, tmp_path):
        await _know_of_waits(nap)
        for _ in range(5):
            latencies: list[float] = []
            delays: list[float] = []
            for _ in range(40):
                began = time.perf_counter()
                job = await nap.enqueue(0.03)
                delays.append(time.perf_counter() - began)
                ended_at = await job.result(timeout=LIMIT)
                latencies.append(time.time() - ended_at)
                began = time.perf_counter()
                await asyncio.sleep(0.001)
                delays[-1] += time.perf_counter() - began
            rounds.append((_p95(latencies), _p95(delays)))
            if rounds[-1][0] <= 0.020 + 3 * max(0.0, rounds[-1][1] - 0.005):
                return
    raise AssertionError(f"p95 of (latency, delay) in seconds per round: {rounds}")


async def _know_of_waits(nap: TaskHandle[[float], Any]) -> None:
    """Let the worker learn that something waits for ends: until then it does not notify of them."""
    for _ in range(50):
        job = await nap.enqueue(0.0)
        try:
            await job.result(timeout=0.5)
        except TimeoutError:
            continue
        return
    raise AssertionError("no end was notified of")


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def test_ends_are_seen_again_after_the_app_was_closed(app: App):
    @app.task
    async def give(n: int) -> int:
        return n

    async with working(app):
        assert await (await give.enqueue(1)).result(timeout=LIMIT) == 1
    await app.close()
    async with working(app):
        assert await (await give.enqueue(2)).result(timeout=LIMIT) == 2


async def test_a_job_of_the_own_transaction_can_be_looked_at_inside_it(app: App):
    needs(app, "join transactions")
    seen: list[str] = []

    @app.task
    async def child() -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        async with ctx.transaction():
            job = await child.options(delay=60).enqueue()
            with pytest.raises(TimeoutError) as error:
                await job.result(timeout=0)
            seen.append(str(error.value).partition(" is ")[2])

    job = await parent.enqueue()
    async with working(app):
        assert await job.wait(LIMIT) is JobState.COMPLETED
    assert seen == ["scheduled, and has not ended yet"]


def test_many_threads_share_the_looks(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}")

    @app.task
    async def give(n: int) -> int:
        return n

    jobs = give.sync.enqueue_many([give.call(n) for n in range(20)])
    results: dict[int, int] = {}

    def wait(n: int, job: JobHandle[int]) -> None:
        results[n] = job.sync.result(timeout=LIMIT)

    threads = [threading.Thread(target=wait, args=given) for given in enumerate(jobs)]
    for thread in threads:
        thread.start()
    app.sync.drain("default")
    for thread in threads:
        thread.join(LIMIT)

    assert results == {n: n for n in range(20)}
    app.sync.close()
