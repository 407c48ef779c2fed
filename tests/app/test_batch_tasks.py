"""Tasks that run in batches: one call of the handler and one transaction for many jobs."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.app.capability import needs
from tests.app.work import ended, run_all, working

from holdfast import App, BatchContext, Call, ConfigError, JobHandle, JobState, LeaseLost
from holdfast.hooks import HandlerCall

DONE, FAILED = JobState.COMPLETED, JobState.FAILED


@pytest.fixture
async def shop(each_url: str) -> AsyncIterator[App]:
    """An app with a table for effects, on each store."""
    app = App(each_url)
    needs(app, "join transactions")

    @app.task(batch=1)
    async def prepare(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"create table {table(app)} (n integer)")

    await prepare.enqueue(0)
    await run_all(app)
    yield app
    await app.close()
    app.portal.close()


def table(app: App) -> str:
    """Return the name of the table for effects: on PostgreSQL in the schema of this test."""
    found = re.search(r"schema=(\w+)", app.backend.url)
    return f"{found[1]}.effect" if found else "effect"


def insert(app: App, n: int) -> str:
    return f"insert into {table(app)} (n) values ({n})"  # noqa: S608 - names of this test


async def effects(app: App) -> list[int]:
    """Return the effects, read in a transaction of one more batch."""
    seen: list[int] = []

    @app.task(batch=1, name=f"look-{time.monotonic_ns()}")
    async def look(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction() as connection:
            cursor = await connection.execute(f"select n from {table(app)} order by n")  # noqa: S608
            rows: Any = cursor.fetchall()
            seen.extend(row[0] for row in (await rows if asyncio.iscoroutine(rows) else rows))

    await look.enqueue(0)
    await run_all(app)
    return seen


async def states(jobs: list[JobHandle[Any]]) -> list[JobState]:
    return [await job.state() for job in jobs]


async def test_effects_results_and_completions_of_a_batch_commit_together(shop: App):
    sizes: list[int] = []

    @shop.task(batch=100, linger=0.05)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        sizes.append(len(calls))
        async with ctx.transaction() as connection:
            for call in calls:
                await connection.execute(insert(shop, call.argument))
                call.result = {"paid": call.argument}

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(250)]))
    worker = await run_all(shop)

    assert await effects(shop) == list(range(250))
    assert await jobs[7].result() == {"paid": 7}
    assert worker.status().totals.completed == 250
    assert max(sizes) == 100
    assert len(sizes) <= 6


async def test_a_plain_function_runs_its_batch_in_a_thread(shop: App):

    @shop.task(batch=10)
    def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        with ctx.sync.transaction() as connection:
            for call in calls:
                connection.execute(insert(shop, call.argument))

    await charge.enqueue_many([charge.call(n) for n in range(15)])
    await run_all(shop)

    assert await effects(shop) == list(range(15))


async def test_each_call_may_end_in_its_own_way_within_the_transaction(shop: App):

    @shop.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction() as connection:
            for call in calls:
                if call.job.attempt > 1:
                    call.result = (call.job.attempt, call.job.used_attempts)
                elif call.argument == 1:
                    call.fail("the card is invalid")
                elif call.argument == 2:
                    call.retry(0.01, ValueError("busy"))
                elif call.argument == 3:
                    call.release()
                elif call.argument == 4:
                    call.cancel("not wanted")
                if not call.is_decided:
                    await connection.execute(insert(shop, call.argument))

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(5)]))
    worker = await run_all(shop)

    assert await states(jobs) == [DONE, FAILED, DONE, DONE, JobState.CANCELLED]
    assert await effects(shop) == [0, 2, 3]
    assert await jobs[2].result() == [2, 2]
    assert await jobs[3].result() == [2, 1], "a released attempt does not count"
    totals = worker.status().totals
    assert (totals.completed, totals.failed, totals.retried, totals.snoozed, totals.cancelled) == (3, 1, 1, 1, 1)


async def test_without_a_transaction_the_outcomes_are_written_after_the_handler(app: App):
    @app.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        for call in calls:
            call.result = call.argument
        calls[1].fail("no")

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(3)]))
    await run_all(app)

    assert await states(jobs) == [DONE, FAILED, DONE]
    assert await jobs[2].result() == 2


async def test_a_job_that_makes_its_batch_raise_takes_no_other_job_with_it(shop: App):
    """Whatever the policy says: the error of a shared batch ends no job, and each runs alone next."""
    sizes: list[int] = []

    @shop.task(batch=10, linger=0.2, retry=lambda attempt, error: None)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        sizes.append(len(calls))
        async with ctx.transaction() as connection:
            for call in calls:
                await connection.execute(insert(shop, call.argument))
                if call.argument == 3:
                    raise ValueError("poison")

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(6)]))
    await run_all(shop)

    assert await states(jobs) == [DONE, DONE, DONE, FAILED, DONE, DONE]
    assert await effects(shop) == [0, 1, 2, 4, 5]
    assert sizes == [6, *[1] * 6]
    record = await shop.jobs.show(jobs[3].id)
    assert [attempt.outcome for attempt in record.attempts] == ["retried", "failed"]


async def test_a_call_that_was_decided_on_keeps_its_outcome_if_the_handler_raises(app: App):
    @app.task(batch=10, linger=0.2, max_attempts=2, retry=0)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        if len(calls) > 1:
            calls[0].fail("decided")
            raise ValueError("and then")

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(2)]))
    await run_all(app)

    assert await states(jobs) == [FAILED, DONE]
    assert (await app.jobs.show(jobs[0].id)).attempts[-1].message == "decided"


@pytest.mark.parametrize("catches", [False, True])
async def test_a_stale_lease_of_one_job_does_not_affect_the_others(shop: App, catches: bool):
    """The handler is called again without it, even if it catches the error, and no effect is written twice."""
    seen: list[list[int]] = []
    jobs: list[JobHandle[Any]] = []

    @shop.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        seen.append([call.argument for call in calls])
        if len(seen) == 1:
            await shop.jobs.reset(jobs[1].id)
        try:
            async with ctx.transaction() as connection:
                for call in calls:
                    await connection.execute(insert(shop, call.argument))
        except LeaseLost:
            if not catches:
                raise

    jobs += await charge.enqueue_many([charge.call(n) for n in range(4)])
    await run_all(shop)

    assert await states(jobs) == [DONE] * 4
    assert await effects(shop) == [0, 1, 2, 3]
    assert seen[:1] == [[0, 1, 2, 3]]
    assert [0, 2, 3] in seen
    assert [1] in seen
    assert [(await shop.jobs.show(job.id)).job.attempt for job in jobs] == [1, 2, 1, 1]


async def test_a_cancel_request_of_one_job_is_left_to_the_handler_and_the_others_go_on(app: App):
    began, jobs = asyncio.Event(), list[JobHandle[Any]]()

    @app.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        began.set()
        await calls[1].cancel_asked.wait()
        calls[1].cancel("as asked")

    jobs += await charge.enqueue_many([charge.call(n) for n in range(3)])
    async with working(app, lease=1.0):
        await asyncio.wait_for(began.wait(), 10)
        await jobs[1].cancel("unwanted")
        assert [await ended(job) for job in jobs] == [DONE, JobState.CANCELLED, DONE]


async def test_a_batch_whose_jobs_are_all_to_be_cancelled_is_cancelled(app: App):
    began, jobs = asyncio.Event(), list[JobHandle[Any]]()

    @app.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        began.set()
        await asyncio.Event().wait()

    jobs += await charge.enqueue_many([charge.call(n) for n in range(2)])
    async with working(app, lease=1.0):
        await asyncio.wait_for(began.wait(), 10)
        for job in jobs:
            await job.cancel("unwanted")
        assert [await ended(job) for job in jobs] == [JobState.CANCELLED] * 2


async def test_a_time_limit_ends_the_attempts_of_all_its_jobs(app: App):
    sizes: list[int] = []

    @app.task(batch=10, linger=0.2, timeout=0.05, retry=0)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        sizes.append(len(calls))
        if len(calls) > 1:
            await asyncio.Event().wait()

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(3)]))
    await run_all(app)

    assert await states(jobs) == [DONE] * 3
    assert sizes == [3, 1, 1, 1]
    (first, *_) = (await app.jobs.show(jobs[0].id)).attempts
    assert (first.outcome, first.error_class) == ("retried", "TimeLimit")


async def test_a_worker_that_is_told_to_end_at_once_releases_the_jobs_of_its_batches(app: App):
    began = asyncio.Event()

    @app.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        began.set()
        await asyncio.Event().wait()

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(3)]))
    async with working(app) as worker:
        await asyncio.wait_for(began.wait(), 10)
        worker.stop()
    assert worker.status().totals.released >= 3  # a claim that was under way may lease and release them again
    assert await states(jobs) == [JobState.READY] * 3


async def test_a_job_whose_argument_does_not_match_fails_alone(file_app: App):
    seen: list[list[int]] = []

    async def charge(ctx: BatchContext, calls: list[Call[str]]) -> None: ...

    async def charge_now(ctx: BatchContext, calls: list[Call[int]]) -> None:
        seen.append([call.argument for call in calls])

    other = App(file_app.backend.url)
    bad = await other.task(batch=10, name="charge")(charge).enqueue("seven")
    now = file_app.task(batch=10, linger=0.2, name="charge", max_attempts=2, retry=0)(charge_now)
    good = list(await now.enqueue_many([now.call(n) for n in range(2)]))
    await run_all(file_app)
    await other.close()

    assert await states(good) == [DONE, DONE]
    assert await file_app.job(bad.id).state() in {FAILED, JobState.SCHEDULED}
    assert seen[0] == [0, 1]


async def test_after_the_transaction_nothing_more_can_be_recorded(app: App):
    errors: list[str] = []

    @app.task(batch=10)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction():
            pass
        for act in (lambda: calls[0].fail("late"), lambda: ctx.transaction().__aenter__()):
            try:
                found: Any = act()
                if found is not None:
                    await found
            except ConfigError as error:
                errors.append(str(error))

    job = await charge.enqueue(1)
    await run_all(app)
    assert await job.state() is DONE
    assert [text[:20] for text in errors] == [f"job {job.id}"[:20], "this batch has had its transaction"[:20]]


async def test_a_returned_value_is_refused_because_it_belongs_to_no_job(app: App):
    @app.task(batch=10, max_attempts=2, retry=0)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> int:
        return 7

    job = await charge.enqueue(1)
    await run_all(app)
    assert await job.state() is FAILED
    assert "call.result" in str((await app.jobs.show(job.id)).attempts[-1].message)


async def test_a_conflict_of_its_transaction_repeats_the_batch(shop: App):
    runs: list[int] = []

    @shop.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        runs.append(len(calls))
        if len(runs) == 1:
            from holdfast import TransactionConflict

            raise TransactionConflict("as if another one had won")
        calls[0].result = 1

    jobs = list(await charge.enqueue_many([charge.call(n) for n in range(2)]))
    await run_all(shop)
    assert runs == [2, 2]
    assert await states(jobs) == [DONE, DONE]
    assert (await shop.jobs.show(jobs[0].id)).job.attempt == 1


async def test_observers_and_middleware_see_a_batch_and_each_of_its_jobs(app: App):
    seen: list[object] = []

    @app.middleware
    def around(call: HandlerCall) -> Iterator[None]:
        seen.append(len(call.jobs))
        yield

    app.on("job.start", lambda start: seen.append("start"))
    app.on("job.end", lambda end: seen.append(end.outcome))

    @app.task(batch=10, linger=0.2)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction():
            calls[1].fail("no")

    await charge.enqueue_many([charge.call(n) for n in range(2)])
    await run_all(app)
    assert seen == ["start", "start", 2, "completed", "failed"]
