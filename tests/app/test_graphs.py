"""Jobs after others: `after=`, `chain`, `group`, and what a child gets of its parents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.work import working

from holdfast import App, ConfigError, Context, JobNotFound, JobState, chain, group


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with App(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


def tasks(app: App) -> tuple[Any, Any, Any]:
    @app.task(max_attempts=1)
    async def one(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    @app.task
    async def add(ctx: Context, number: int = 0) -> int:
        parents: list[int] = await ctx.results(int)
        return sum(parents) + number

    @app.task
    def add_blocking(ctx: Context) -> list[Any]:
        return ctx.sync.results()

    return one, add, add_blocking


async def test_a_chain_hands_each_result_to_the_next(app: App) -> None:
    one, add, _ = tasks(app)

    first, second, third = await chain(one.call(1), add.call(10), add.call(100)).enqueue()

    assert [await job.state() for job in (first, second, third)] == ["ready", "blocked", "blocked"]
    await app.drain("default")
    assert [await job.result() for job in (first, second, third)] == [1, 11, 111]


async def test_a_job_after_a_group_gets_all_results_in_the_order_of_the_calls(app: App) -> None:
    one, _, add_blocking = tasks(app)

    *_, last = await chain(group(*(one.call(n) for n in (3, 1, 2))), add_blocking.call()).enqueue()

    await app.drain("default")
    assert await last.result() == [3, 1, 2]


async def test_groups_and_chains_are_nested(app: App) -> None:
    one, add, _ = tasks(app)
    graph = chain(one.call(1), group(chain(add.call(1), add.call(1)), add.call(10)), add.call())

    assert graph.parents == [[], [0], [1], [0], [2, 3]]
    jobs = await graph.enqueue()
    await app.drain("default")
    assert [await job.result() for job in jobs] == [1, 2, 3, 11, 14]


async def test_a_job_waits_for_jobs_and_ids_in_after(app: App) -> None:
    one, add, _ = tasks(app)
    first, second = await one.enqueue(1), await one.enqueue(2)

    both = await add.options(after=[first, second.id]).enqueue()
    single = await add.options(after=first).enqueue()

    assert await both.state() is JobState.BLOCKED
    await app.drain("default")
    assert (await both.result(), await single.result()) == (3, 1)


async def test_a_failed_parent_cancels_its_children_or_they_run_anyway(app: App) -> None:
    one, add, add_blocking = tasks(app)
    good, bad = await one.enqueue(1), await one.enqueue(-1)
    child = await add.options(after=[good, bad]).enqueue()
    anyway = await add_blocking.options(after=[good, bad], run_anyway=True).enqueue()

    await app.drain("default")

    details = await child.details()
    assert (details.job.state, bad.id in (details.job.reason or "")) == (JobState.CANCELLED, True)
    assert await anyway.result() == [1, None]


async def test_blocking_code_enqueues_graphs(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    one, add, _ = tasks(app)

    def work() -> Any:
        with app.sync:
            jobs = chain(one.call(1), add.call(1)).sync.enqueue()
            app.sync.drain("default")
            return jobs[-1].sync.result(), len(app.sync.jobs.graph(jobs[0].id).jobs)

    assert await asyncio.to_thread(work) == (2, 2)


async def test_the_graph_of_a_job_lists_all_that_are_connected_with_it(app: App) -> None:
    one, add, _ = tasks(app)
    jobs = await chain(one.call(1), group(add.call(1), add.call(2)), add.call()).enqueue()
    await one.enqueue(5)

    graph = await app.jobs.graph(jobs[1].id)

    first, second, third, last = (job.id for job in jobs)
    assert [(job.id, job.parents) for job in graph.jobs] == [
        (first, []),
        (second, [first]),
        (third, [first]),
        (last, [second, third]),
    ]
    assert (graph.is_cut, (await app.jobs.graph(first, limit=2)).is_cut) == (False, True)


@pytest.mark.slow
async def test_a_graph_of_ten_thousand_jobs_is_enqueued_in_one_call_and_drains(on_each_store: App) -> None:
    app = on_each_store
    ran: list[int] = []

    @app.task
    async def step(number: int) -> None:
        ran.append(number)

    chains = [chain(*(step.call(row * 100 + column) for column in range(100))) for row in range(100)]

    jobs = await group(*chains).enqueue()

    assert len(jobs) == 10_000
    assert await app.drain("default") is not None
    assert len(ran) == len(set(ran)) == 10_000
    places = {number: place for place, number in enumerate(ran)}
    assert all(places[number] < places[number + 1] for number in range(9_999) if (number + 1) % 100)


@pytest.mark.slow
async def test_a_child_of_five_thousand_parents_runs_once_after_all_of_them(on_each_store: App) -> None:
    app = on_each_store
    ends: list[int] = []

    @app.task
    async def parent(number: int) -> int:
        ends.append(number)
        return number

    @app.task
    async def child(ctx: Context) -> int:
        ends.append(-1)
        return sum(await ctx.results(int))

    *_, last = await chain(group(*(parent.call(number) for number in range(5_000))), child.call()).enqueue()

    await app.drain("default")
    assert (ends[-1], sorted(ends[:-1])) == (-1, list(range(5_000)))
    assert await last.result() == sum(range(5_000))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"after": [3]}, "got int"),
        ({"run_anyway": True}, "without parents"),
        ({"after": ["x"]}, "x"),
        ({"after": [], "run_anyway": 3}, "neither True nor False"),
    ],
)
async def test_an_invalid_parent_is_an_error_that_says_what_to_pass(app: App, options: Any, said: str) -> None:
    one, _, _ = tasks(app)

    with pytest.raises(ConfigError, match=said):
        one.options(**options)


async def test_a_parent_that_does_not_exist_and_a_call_that_was_made_are_errors(app: App) -> None:
    one, _, _ = tasks(app)

    with pytest.raises(JobNotFound, match="00000000-0000-7000-8000-000000000001"):
        await one.options(after="00000000-0000-7000-8000-000000000001").enqueue(1)
    with pytest.raises(ConfigError, match=r"resize\.call"):
        chain(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="one app"):
        await chain().enqueue()


@pytest.mark.parametrize("kind", ["async", "thread", "batch", "blocking batch"])
async def test_a_parent_that_is_completed_in_a_transaction_releases_its_children_at_its_commit(
    app: App, kind: str
) -> None:
    @app.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        seen.append(await child.state())

    @app.task
    def pay_in_thread(ctx: Context) -> None:
        with ctx.sync.transaction():
            pass
        seen.append(app.portal.call(child.state()))

    seen: list[JobState] = []
    parent = await (pay_in_thread if kind == "thread" else pay).enqueue()
    child = await pay.options(after=[parent], queue="later").enqueue()

    def in_batch(held: Any) -> None:
        with app.sync.batch(held) as batch:
            batch.complete(held[0])

    if "batch" in kind:
        held = await app.claim("default")
        if kind == "batch":
            async with app.batch(held) as batch:
                batch.complete(held[0])
        else:
            await asyncio.to_thread(in_batch, held)
        seen.append(await child.state())
    else:
        await app.drain("default")
    assert seen == [JobState.READY]


async def test_a_committed_effect_stays_committed_though_the_loop_ends_before_its_children_are_decided_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    monkeypatch.setattr("holdfast.runtime.effect.settle_children", cancelled)
    went_on = threading.Event()

    @app.task
    def pay(ctx: Context) -> None:
        with ctx.sync.transaction():
            pass
        went_on.set()

    parent = await pay.enqueue()
    await pay.options(after=[parent], queue="later").enqueue()
    async with working(app, queues=["default"]) as worker:
        assert await parent.wait(10.0) is JobState.COMPLETED
        assert await asyncio.to_thread(went_on.wait, 10.0)
    assert (worker.status().totals.completed, worker.status().totals.lost) == (1, 0)
