"""Order by key as a program asks for it: one at a time, in the order of the enqueues, whatever becomes of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.app.work import ask, run_all, total, working

from holdfast import App, Cancel, ConfigError, Context, JobState, Retry, Snooze


@pytest.fixture
def steps() -> list[Any]:
    return []


@pytest.fixture
def step(app: App, steps: list[Any]):
    under_way: Counter[str | None] = Counter()

    @app.task(queue="orders", max_attempts=2, retry=0.01)
    async def step(n: int, how: str, ctx: Context) -> None:
        order_key = ctx.job.order_key
        under_way[order_key] += 1
        try:
            assert order_key is None or under_way[order_key] == 1
            steps.append((order_key, n))
            await asyncio.sleep(0)
            if how == "transaction":
                async with ctx.transaction():
                    pass
            elif how == "retry" and ctx.job.attempt == 1:
                raise Retry(0.01)
            elif how == "snooze" and ctx.job.attempt == 1:
                raise Snooze(0.01)
            elif how == "cancel":
                raise Cancel
            elif how == "fail":
                raise ValueError(n)
        finally:
            under_way[order_key] -= 1

    return step


@pytest.mark.parametrize("how", ["return", "transaction", "retry", "snooze", "cancel", "fail"])
async def test_the_jobs_of_a_key_run_one_at_a_time_in_the_order_of_their_enqueue(app, step, steps, how):
    for n in range(4):
        for order_key in ("a", "b", "c"):
            await step.options(order_key=order_key).enqueue(n=n, how=how)
    await run_all(app, concurrency=10)

    attempts = 2 if how in {"retry", "snooze", "fail"} else 1
    for order_key in ("a", "b", "c"):
        assert [n for key, n in steps if key == order_key] == [n for n in range(4) for _ in range(attempts)]


async def test_enqueue_many_gives_all_its_jobs_the_key(app, step, steps):
    jobs = await step.options(order_key="a").enqueue_many([{"n": n, "how": "return"} for n in range(20)])

    assert await jobs[0].state() is JobState.READY
    assert {await job.state() for job in jobs[1:]} == {JobState.BLOCKED}
    assert (await jobs[19].details()).job.order_key == "a"
    await run_all(app, concurrency=10)
    assert [n for _, n in steps] == [*range(20)]


async def test_enqueues_awaited_together_go_in_in_the_order_in_which_they_were_begun(app, step, steps):
    handle = step.options(order_key="a")
    await asyncio.gather(*(handle.enqueue(n=n, how="return") for n in range(30)))
    await run_all(app, concurrency=10)

    assert [n for _, n in steps] == [*range(30)]


async def test_a_waiting_worker_is_woken_by_what_comes_up(app, step, steps):
    """With a poll interval of half a minute, only wake-ups can be so quick."""
    async with working(app, poll_interval=30.0):
        for how in ("return", "transaction"):
            jobs = await step.options(order_key="a").enqueue_many([{"n": n, "how": how} for n in range(10)])
            assert await jobs[-1].wait(10) is JobState.COMPLETED


async def test_a_worker_until_empty_does_not_leave_while_jobs_are_blocked(app, steps):
    holding, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def hold(ctx: Context) -> None:
        steps.append(ctx.job.id)
        begun.set()
        await holding.wait()

    first, second = await hold.options(order_key="a").enqueue_many([{}, {}])
    async with working(app, worker_id="holder") as holder:
        await begun.wait()
        holder.stop()  # it ends what it holds and takes no more
        other = asyncio.create_task(run_all(app, worker_id="other"))
        done, _ = await asyncio.wait({other}, timeout=0.5)
        assert not done
        holding.set()
        await other
    assert steps == [first.id, second.id]


async def test_a_worker_until_empty_leaves_what_waits_behind_a_delayed_job(app, step, steps):
    await step.options(order_key="a", delay=3600).enqueue(n=0, how="return")
    later = await step.options(order_key="a").enqueue(n=1, how="return")
    await run_all(app)

    assert steps == []
    assert await later.state() is JobState.BLOCKED


@pytest.mark.parametrize(
    ("order_key", "told"),
    [
        (7, "is not a string"),
        (b"customer", "is not a string"),
        ("", "is empty: leave it out"),
        ("x" * 129, "has 129 characters: at most 128"),
        ("a\0b", "contains a NUL"),
        ("a\ud800", "a lone surrogate"),
    ],
)
async def test_a_key_that_no_store_could_keep_is_refused(app, step, order_key, told):
    with pytest.raises(ConfigError, match=told):
        await step.options(order_key=order_key).enqueue(n=1, how="return")

    assert await total(app) == 0


@pytest.mark.parametrize("order_key", ["customer 3", "Ärger", "'; drop table holdfast_job; --", "%s {} :x", "x" * 128])
async def test_any_other_text_is_a_key(app, step, steps, order_key):
    job = await step.options(order_key=order_key).enqueue(n=1, how="return")

    assert (await job.details()).job.order_key == order_key
    await run_all(app)
    assert steps == [(order_key, 1)]


async def test_a_line_that_is_empty_leaves_nothing_behind(app, step, path):
    for order_key in ("a", "b"):
        await step.options(order_key=order_key).enqueue_many([{"n": n, "how": "return"} for n in range(3)])
    assert ask(path, "select count(*) from holdfast_key_head") == [(2,)]
    await run_all(app)

    assert ask(path, "select * from holdfast_key_head") == ask(path, "select * from holdfast_blocked") == []
