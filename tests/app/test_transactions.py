"""Effect and completion together: `ctx.transaction()`, `ctx.complete(using=)`, `options(using=)`."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.app.test_lost_replies import LOST, Failing
from tests.app.work import ask, change, connected, ended, run_all, working

from holdfast import App, ConfigError, Context, JobState, OutcomeUnknown, StoreUnavailable, TransactionExpired


@pytest.fixture
async def shop(file_app: App, tmp_path) -> App:
    """An app on a file with a table of effects."""
    await file_app.opened()
    change(tmp_path / "jobs.db", "create table payment (job_id text not null, note text)")
    return file_app


@pytest.fixture
def payments(tmp_path):
    return lambda: ask(tmp_path / "jobs.db", "select job_id, note from payment order by rowid")


INSERT = "insert into payment (job_id, note) values (?, ?)"


async def test_effect_result_and_completion_commit_together(shop: App, payments):
    @shop.task
    async def charge(ctx: Context) -> str:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (ctx.job.id, "once"))
            rows = (await connection.execute("select count(*) from payment")).fetchone()
            ctx.result = {"rows": rows[0]}
        return "ignored, the transaction has spoken"

    job = await charge.enqueue()
    await run_all(shop)

    assert payments() == [(job.id, "once")]
    assert await job.state() is JobState.COMPLETED
    assert await shop.job(job.id).result() == {"rows": 1}


async def test_a_thread_handler_has_the_same(shop: App, payments):
    @shop.task
    def charge(ctx: Context) -> None:
        with ctx.sync.transaction() as connection:
            connection.executemany(INSERT, [(ctx.job.id, "a"), (ctx.job.id, "b")])
            ctx.result = 7

    job = await charge.enqueue()
    await run_all(shop)

    assert [note for _, note in payments()] == ["a", "b"]
    assert await job.result(int) == 7


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_an_exception_rolls_both_back_and_the_attempt_has_failed(shop: App, payments, how):
    if how == "async":

        @shop.task(name="charge", max_attempts=2, retry=0.01)
        async def charge(ctx: Context) -> None:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, (ctx.job.id, f"attempt {ctx.job.attempt}"))
                if ctx.job.attempt == 1:
                    raise ValueError("declined")

    else:

        @shop.task(name="charge", max_attempts=2, retry=0.01)
        def charge(ctx: Context) -> None:
            with ctx.sync.transaction() as connection:
                connection.execute(INSERT, (ctx.job.id, f"attempt {ctx.job.attempt}"))
                if ctx.job.attempt == 1:
                    raise ValueError("declined")

    job = await charge.enqueue()
    await run_all(shop)

    assert payments() == [(job.id, "attempt 2")]
    assert [attempt.message for attempt in (await job.details()).attempts] == ["declined"]


async def test_without_completion_the_effect_stays_and_the_job_goes_on(shop: App, payments):
    @shop.task(max_attempts=2, retry=0.01)
    async def steps(ctx: Context) -> str:
        async with ctx.transaction(completes=False) as connection:
            await connection.execute(INSERT, (ctx.job.id, "step one"))
        await ctx.progress(50)
        async with ctx.transaction(completes=False) as connection:
            await connection.execute(INSERT, (ctx.job.id, "step two"))
        if ctx.job.attempt == 1:
            raise ValueError("after the steps")
        return "returned"

    job = await steps.enqueue()
    await run_all(shop)

    assert [note for _, note in payments()] == ["step one", "step two"] * 2
    assert await job.result() == "returned"


async def test_an_exception_after_the_block_is_only_logged(shop: App, payments, caplog):
    @shop.task
    async def charge(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (ctx.job.id, "kept"))
        raise ValueError("too late to matter")

    job = await charge.enqueue()
    with caplog.at_level(logging.ERROR, "holdfast"):
        await run_all(shop)

    assert await job.state() is JobState.COMPLETED
    assert payments() == [(job.id, "kept")]
    assert (await job.details()).attempts == []
    assert "was completed by its own transaction, and then its handler raised ValueError: too late" in caplog.text
    assert "Traceback" in caplog.text


async def test_calls_inside_the_block_join_it_and_are_rolled_back_with_it(shop: App):
    @shop.task(queue="later")
    async def follow_up(n: int) -> None: ...

    @shop.task(max_attempts=2, retry=0.01)
    async def charge(ctx: Context) -> None:
        async with ctx.transaction():
            await follow_up.enqueue(n=ctx.job.attempt)
            await ctx.progress(10)
            if ctx.job.attempt == 1:
                raise ValueError("declined")

    await charge.enqueue()
    await run_all(shop, queues=["default"])

    (only,) = (await shop.jobs.list("ready", queue="later")).jobs
    assert (await shop.jobs.show(only.id)).payload == '[[],{"n":2}]'


async def test_blocking_calls_inside_the_block_of_a_thread_handler_join_it_too(shop: App):
    @shop.task(queue="later")
    async def follow_up(n: int) -> None: ...

    @shop.task(max_attempts=2, retry=0.01)
    def charge(ctx: Context) -> None:
        with ctx.sync.transaction():
            follow_up.sync.enqueue(n=ctx.job.attempt)
            if ctx.job.attempt == 1:
                raise ValueError("declined")

    await charge.enqueue()
    await run_all(shop, queues=["default"])

    (only,) = (await shop.jobs.list("ready", queue="later")).jobs
    assert (await shop.jobs.show(only.id)).payload == '[[],{"n":2}]'


@pytest.mark.parametrize("sql", ["commit", "rollback", "begin", "end", "Commit;"])
async def test_a_handler_cannot_end_its_transaction_by_a_statement(shop: App, payments, sql):
    @shop.task(max_attempts=1)
    async def charge(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (ctx.job.id, "never"))
            await connection.execute(sql)

    job = await charge.enqueue()
    await run_all(shop)

    assert await job.state() is JobState.FAILED
    assert payments() == []


async def test_a_stale_fence_opens_no_transaction_and_leaves_no_effect(shop: App, payments, tmp_path):
    inside = asyncio.Event()

    @shop.task
    async def charge(ctx: Context) -> None:
        if ctx.job.attempt > 1:
            return
        await ctx.progress(1)
        change(tmp_path / "jobs.db", "update holdfast_running set fence = fence - 1")
        inside.set()
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (ctx.job.id, "stale"))

    job = await charge.enqueue()
    async with working(shop):
        await inside.wait()
        await shop.jobs.reset(job.id)
        assert await ended(job) is JobState.COMPLETED

    assert payments() == []


async def test_a_transaction_past_its_limit_is_rolled_back_and_says_how_to_do_better(shop: App, payments):
    seen: list[str] = []

    @shop.task(max_attempts=2, retry=0.01)
    async def charge(ctx: Context) -> None:
        if ctx.job.attempt == 2:
            return
        try:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, (ctx.job.id, "slow"))
                while True:
                    await asyncio.sleep(0.02)
                    await connection.execute("select 1")
        except TransactionExpired as error:
            seen.append(str(error))
            raise

    job = await charge.enqueue()
    await run_all(shop, lease=0.9)

    assert payments() == []
    assert len(seen) == 1
    assert "Do slow work before the transaction" in seen[0]
    (attempt,) = (await job.details()).attempts
    assert "TransactionExpired" in str(attempt.error_class)
    assert await job.state() is JobState.COMPLETED


async def test_a_thread_handlers_transaction_past_its_limit_is_rolled_back_too(shop: App, payments):
    @shop.task(max_attempts=1)
    def charge(ctx: Context) -> None:
        with ctx.sync.transaction() as connection:
            connection.execute(INSERT, (ctx.job.id, "slow"))
            time.sleep(0.5)

    job = await charge.enqueue()
    await run_all(shop, lease=0.9)

    assert payments() == []
    assert "TransactionExpired" in str((await job.details()).attempts[0].error_class)


@pytest.fixture
def loses_replies(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every commit of a handler be done and its reply be lost, and the store be gone when it is first asked."""
    transactions, jobs = shop.backend.transactions, shop.backend.jobs
    begin, begin_blocking = transactions.begin, transactions.begin_blocking

    @asynccontextmanager
    async def unheard(*args: Any, **words: Any) -> AsyncIterator[Any]:
        async with begin(*args, **words) as transaction:
            yield transaction
        raise LOST

    @contextmanager
    def unheard_blocking(*args: Any, **words: Any) -> Iterator[Any]:
        with begin_blocking(*args, **words) as transaction:
            yield transaction
        raise LOST

    monkeypatch.setattr(transactions, "begin", unheard)
    monkeypatch.setattr(transactions, "begin_blocking", unheard_blocking)
    monkeypatch.setattr(jobs, "verify", Failing(jobs.verify, StoreUnavailable("gone"), first=False))


@pytest.mark.usefixtures("loses_replies")
@pytest.mark.parametrize("how", ["async", "thread"])
async def test_a_handler_that_cannot_learn_whether_it_has_committed_is_told_so_and_takes_effect_once(
    shop: App, payments, how
):
    said: list[type[BaseException]] = []

    @shop.task(name="async", retry=0)
    async def charge(ctx: Context) -> None:
        try:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT, (ctx.job.id, "once"))
        except Exception as error:
            said.append(type(error))
            raise

    @shop.task(name="thread", retry=0)
    def charge_in_thread(ctx: Context) -> None:
        try:
            with ctx.sync.transaction() as connection:
                connection.execute(INSERT, (ctx.job.id, "once"))
        except Exception as error:
            said.append(type(error))
            raise

    job = await shop.enqueue(how)
    await run_all(shop)

    assert said == [OutcomeUnknown]
    assert payments() == [(job.id, "once")]
    assert await job.state() is JobState.COMPLETED
    assert (await job.details()).attempts == []


def _completing(shop: App, path, how: str) -> Any:
    @shop.task(max_attempts=1)
    async def charge(ctx: Context) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("begin immediate")
            connection.execute(INSERT, (ctx.job.id, how))
            await ctx.complete({"how": how}, using=connection)
            connection.execute(how)
        finally:
            connection.close()

    return charge


async def test_complete_in_the_callers_own_transaction_counts_when_that_commits(shop: App, payments, tmp_path):
    job = await _completing(shop, tmp_path / "jobs.db", "commit").enqueue()
    await run_all(shop)

    assert payments() == [(job.id, "commit")]
    assert await job.state() is JobState.COMPLETED
    assert await job.result() == {"how": "commit"}


async def test_complete_in_a_transaction_that_is_rolled_back_leaves_a_failed_attempt(shop: App, payments, tmp_path):
    job = await _completing(shop, tmp_path / "jobs.db", "rollback").enqueue()
    await run_all(shop)

    details = await job.details()
    assert payments() == []
    assert (details.job.state, details.result) == (JobState.FAILED, None)
    assert "that transaction was not committed" in str(details.attempts[0].message)


@pytest.mark.parametrize(("how", "expected"), [("commit", 3), ("rollback", 0)])
async def test_jobs_enqueued_in_the_callers_own_transaction_share_its_fate(
    shop: App, payments, tmp_path, how, expected
):
    @shop.task
    async def follow_up(n: int) -> None: ...

    with connected(tmp_path / "jobs.db") as connection:
        connection.execute("begin immediate")
        connection.execute(INSERT, ("business", "data"))
        joined = follow_up.options(using=connection)
        await joined.enqueue(n=1)
        await joined.enqueue_many([{"n": 2}, {"n": 3}])
        assert (await shop.jobs.list("ready")).jobs == []
        connection.execute(how)

    assert len((await shop.jobs.list("ready")).jobs) == expected
    assert len(payments()) == (1 if expected else 0)


async def test_a_repeat_in_the_callers_own_transaction_is_told_and_makes_no_second_job(shop: App, tmp_path):
    @shop.task
    async def follow_up(n: int) -> None: ...

    first = await follow_up.enqueue(n=1)
    with connected(tmp_path / "jobs.db") as connection:
        connection.execute("begin immediate")
        again = await follow_up.options(using=connection, job_id=first.id).enqueue(n=2)
        connection.execute("commit")

    assert (again.id, again.created) == (first.id, False)
    assert len((await shop.jobs.list("ready")).jobs) == 1


@pytest.mark.parametrize("statement", ["commit", "begin", "rollback", "BEGIN IMMEDIATE", "end transaction"])
async def test_a_handler_that_controls_the_transaction_itself_is_told_how_to_end_it(app: App, statement):
    said: list[str] = []

    @app.task
    async def own(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("create table if not exists effect (job_id text)")
            with pytest.raises(ConfigError) as refused:
                await connection.execute(statement)
            said.append(str(refused.value))
            await connection.execute("savepoint mine")
            await connection.execute("rollback to mine")
            await connection.execute("release mine")

    job = await own.enqueue()
    await run_all(app)

    assert await job.state() is JobState.COMPLETED
    (text,) = said
    assert text.startswith("begin, commit and rollback are not allowed here: leave the `with` block to commit")
