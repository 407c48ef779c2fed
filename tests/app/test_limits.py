"""Limits in an app: declared in code, obeyed by workers."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.app.work import run_all, working

from holdfast import App, ConfigError, Context, JobState, Limit


async def test_no_more_handlers_run_at_once_than_the_limit_allows_and_all_run(app: App):
    running = most = done = 0

    @app.task(limit=Limit(running=2))
    async def report(number: int) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        done += 1

    await asyncio.gather(*(report.enqueue(number=number) for number in range(12)))
    await run_all(app)
    assert (most, done) == (2, 12)


async def test_a_slot_that_is_freed_is_used_at_once(app: App):
    """Without the claim after each end, twenty jobs one by one would take twenty polls, here twenty minutes."""

    @app.task(limit=Limit(running=1))
    async def report(number: int) -> int:
        return number

    jobs = [await report.enqueue(number=number) for number in range(20)]
    async with working(app, poll_interval=60):
        assert [await job.result(timeout=20) for job in jobs] == list(range(20))


async def test_a_worker_wakes_when_the_rate_allows_the_next_job(app: App):
    @app.task(limit=Limit(rate="20/s", burst=2))
    async def report(number: int) -> int:
        return number

    jobs = [await report.enqueue(number=number) for number in range(5)]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with working(app, poll_interval=60):
        assert [await job.result(timeout=20) for job in jobs] == list(range(5))
    assert loop.time() - begun >= 3 * 0.05


async def test_jobs_within_a_limit_get_their_turn_beside_a_backlog_that_is_prefetched(app: App):
    """The limit has room and their turn comes first: they do not wait until the others are done."""
    backlog, done, begun = 2500, 0, list[int]()

    @app.task(limit=Limit(running=5), priority=50)
    async def report() -> None:
        begun.append(done)

    @app.task
    async def resize() -> None:
        nonlocal done
        await asyncio.sleep(0.001)
        done += 1
        if done == 800:
            await report.enqueue_many([[], [], []])

    await resize.enqueue_many([[] for _ in range(backlog)])
    await run_all(app)
    assert done == backlog
    assert len(begun) == 3
    assert max(begun) < backlog - 500


async def test_the_limits_of_the_code_are_written_when_a_worker_starts_and_an_operators_stay(app: App):
    app.queue_limits["mail"] = Limit(running=7)

    @app.task(queue="mail", limit=Limit(running=2))
    async def report() -> None: ...

    await run_all(app)
    assert [view.limit for view in await app.queues.list()] == [Limit(running=7)]
    assert [view.limit for view in await app.tasks.list()] == [Limit(running=2)]
    await app.tasks.limit(report.name, Limit(running=1))
    await app.queues.limit("mail", None)
    await run_all(app)
    assert [view.limit for view in await app.queues.list()] == [None]
    assert [view.limit for view in await app.tasks.list()] == [Limit(running=1)]


def test_what_is_no_limit_is_refused():
    with pytest.raises(ConfigError, match="pass Limit"):
        App("sqlite://", limits={"mail": 5})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="pass Limit"):
        App("sqlite://").task(limit=5)(test_what_is_no_limit_is_refused)  # type: ignore[call-overload]


async def test_no_more_handlers_of_a_key_run_at_once_than_its_limit_allows_and_all_run(app: App):
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    done = 0

    @app.task(key_limit=Limit(running=2))
    async def report(key: str) -> None:
        nonlocal done
        running[key] += 1
        most[key] = max(most[key], running[key])
        await asyncio.sleep(0.005)
        running[key] -= 1
        done += 1

    await asyncio.gather(*(report.options(limit_key=key).enqueue(key=key) for key in "abc" * 5))
    await asyncio.gather(*(report.enqueue(key="none") for _ in range(5)))
    await run_all(app)
    assert (dict(most), done) == ({"a": 2, "b": 2, "c": 2, "none": most["none"]}, 20)
    assert most["none"] > 2


async def test_a_worker_wakes_when_the_rate_of_a_key_allows_the_next_job(app: App):
    @app.task(key_limit=Limit(rate="20/s", burst=2))
    async def report(number: int) -> int:
        return number

    chosen = report.options(limit_key="a")
    jobs = [await chosen.enqueue(number=number) for number in range(5)]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with working(app, poll_interval=60):
        assert [await job.result(timeout=20) for job in jobs] == list(range(5))
    assert loop.time() - begun >= 3 * 0.05


async def test_a_handlers_transaction_enqueues_to_a_limited_key(app: App):
    @app.task(key_limit=Limit(running=1))
    async def report(number: int) -> int:
        return number

    @app.task
    async def first(ctx: Context) -> None:
        async with ctx.transaction():
            for number in range(3):
                await report.options(limit_key="a").enqueue(number=number)

    job = await first.enqueue()
    await run_all(app)
    assert await job.state() is JobState.COMPLETED
    assert len((await app.jobs.list("completed", task="report")).jobs) == 3


async def test_an_order_key_and_a_limit_key_exclude_each_other(app: App):
    @app.task
    async def report() -> None: ...

    with pytest.raises(ConfigError, match=r"one key at a time.*leave out limit_key"):
        report.options(order_key="a", limit_key="b")
    with pytest.raises(ConfigError, match="limit_key='' is empty"):
        report.options(limit_key="")
