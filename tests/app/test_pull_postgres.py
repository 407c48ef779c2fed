"""The pull side on a real PostgreSQL server: lost replies, failed statements, transactions inside one another."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.servers.postgres_schemas import clean_schema

from holdfast import App, ClaimedJob, ConfigError, Context, JobState, OutcomeUnknown, StoreUnavailable
from holdfast.testing.stores import open_store
from holdfast.torture.proxy import Proxy

FACES = pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])


@pytest.fixture
def url() -> Iterator[str]:
    with clean_schema() as url:
        yield url


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@pytest.fixture
async def app(url: str, proxy: Proxy) -> AsyncIterator[App]:
    """An app whose way to the server leads through the proxy, with two orders waiting."""
    async with open_store(url):
        pass
    app = App(proxy.url)

    @app.task(queue="orders")
    async def order(n: int) -> None: ...

    async with app:
        await order.enqueue_many([{"n": n} for n in range(2)])
        yield app
        proxy.heal()
    await asyncio.to_thread(app.portal.close)


async def state(app: App, job: ClaimedJob) -> JobState:
    return await app.job(job.id).state()


# --- a commit of which nobody knows -----------------------------------------------------------------------------------


@pytest.fixture
def out_of_reach(app: App, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the next commit be done and its reply be lost, and the server be out of reach when somebody asks for it."""
    jobs = app.backend.jobs
    verify = jobs.verify

    async def verify_in_vain(*args: Any) -> Any:
        proxy.refuse()
        with pytest.raises(StoreUnavailable) as refused:
            await verify(*args)
        raise refused.value

    def fault() -> None:
        monkeypatch.setattr(jobs, "verify", verify_in_vain)
        proxy.arm("after")

    return fault


class Keeper:
    """Hears what a handler says of its own transaction."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def settling(self, seq: int) -> None:
        self.said.append("settling")

    def settled(self, seq: int) -> None:
        self.said.append("settled")

    def unsettled(self, seq: int) -> None:
        self.said.append("unsettled")


@FACES
async def test_a_batch_whose_commit_cannot_be_checked_is_unknown(app: App, proxy: Proxy, out_of_reach, blocking: bool):
    jobs = await app.claim("orders", 2)

    def work() -> None:
        with app.sync.batch(jobs) as batch:
            for job in batch.held:
                batch.complete(job)
            out_of_reach()

    with pytest.raises(OutcomeUnknown) as unknown:
        if blocking:
            await asyncio.to_thread(work)
        async with app.batch(jobs) as batch:
            for job in batch.held:
                batch.complete(job)
            out_of_reach()

    assert isinstance(unknown.value.__cause__, StoreUnavailable)
    proxy.heal()
    assert [await state(app, job) for job in jobs] == [JobState.COMPLETED] * 2, "it was done"


@FACES
async def test_a_handlers_transaction_whose_commit_cannot_be_checked_is_unknown(
    app: App, proxy: Proxy, out_of_reach, blocking: bool
):
    (job,) = await app.claim("orders")
    keeper = Keeper()
    context = Context(job.job, app.backend, lease=job.span, keeper=keeper)

    def work() -> None:
        with context.sync.transaction():
            out_of_reach()

    with pytest.raises(OutcomeUnknown) as unknown:
        if blocking:
            await asyncio.to_thread(work)
        async with context.transaction():
            out_of_reach()

    assert isinstance(unknown.value.__cause__, StoreUnavailable)
    assert keeper.said == ["settling", "unsettled"]
    assert context.completed_by is None
    proxy.heal()
    assert await state(app, job) is JobState.COMPLETED, "it was done"


# --- a claim of which nobody knows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_claim_has_taken_whose_reply_was_cut_is_given_back(app: App, proxy: Proxy, when: Any):
    proxy.arm(when, "lanes as materialized")
    with pytest.raises(OutcomeUnknown):
        await app.claim("orders", 2)

    assert await app.leases() == []
    again = await app.claim("orders", 2)
    assert {(job.job.used_attempts, job.job.lost) for job in again} == {(1, 0)}


async def test_a_claim_that_is_cancelled_on_its_way_keeps_nothing(app: App, proxy: Proxy, monkeypatch):
    begun = asyncio.Event()
    claim = app.backend.jobs.claim

    async def watched(*args: Any) -> Any:
        begun.set()
        return await claim(*args)

    monkeypatch.setattr(app.backend.jobs, "claim", watched)
    proxy.delay = 0.1
    claiming = asyncio.create_task(app.claim("orders", 2))
    await begun.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    proxy.delay = 0.0

    assert await app.leases() == []
    again = await app.claim("orders", 2)
    assert {(job.job.used_attempts, job.job.lost) for job in again} == {(1, 0)}


# --- transactions inside one another ----------------------------------------------------------------------------------


@FACES
async def test_a_batch_inside_an_open_transaction_is_refused_and_commits_nothing(app: App, blocking: bool):
    first, second = await app.claim("orders", 2)

    def work() -> None:
        with app.sync.batch([first]), app.sync.batch([second]) as batch:
            batch.complete(second)

    with pytest.raises(ConfigError, match="a transaction is open here already"):
        if blocking:
            await asyncio.to_thread(work)
        async with first.context().transaction(), app.batch([second]) as batch:
            batch.complete(second)

    assert [await state(app, job) for job in (first, second)] == [JobState.RUNNING] * 2


@FACES
async def test_completing_a_job_inside_its_own_transaction_is_told_for_what_it_is(app: App, blocking: bool):
    (job,) = await app.claim("orders")

    def work() -> None:
        with job.sync.context().sync.transaction():
            job.sync.complete()

    with pytest.raises(ConfigError, match="leaving that block completes it too"):
        if blocking:
            await asyncio.to_thread(work)
        async with job.context().transaction():
            await job.complete()
    assert await state(app, job) is JobState.RUNNING


# --- statements that fail ---------------------------------------------------------------------------------------------


@FACES
async def test_a_batch_whose_caller_swallows_the_error_of_a_statement_is_told_of_savepoints(app: App, blocking: bool):
    jobs = await app.claim("orders", 2)

    def work() -> None:
        with app.sync.batch(jobs) as batch:
            with suppress(psycopg.errors.DivisionByZero):
                batch.connection.execute("select 1 / 0")
            batch.complete(jobs[0])

    with pytest.raises(ConfigError, match="savepoint"):
        if blocking:
            await asyncio.to_thread(work)
        async with app.batch(jobs) as batch:
            with suppress(psycopg.errors.DivisionByZero):
                await batch.connection.execute("select 1 / 0")
            batch.complete(jobs[0])

    assert [await state(app, job) for job in jobs] == [JobState.RUNNING] * 2


@FACES
async def test_a_batch_whose_caller_ends_the_transaction_writes_no_end_outside_of_it(app: App, blocking: bool):
    jobs = await app.claim("orders", 2)

    def work() -> None:
        with app.sync.batch(jobs) as batch:
            batch.connection.execute("rollback")
            batch.complete(jobs[0])

    with pytest.raises(ConfigError, match="leave that to the `with` block"):
        if blocking:
            await asyncio.to_thread(work)
        async with app.batch(jobs) as batch:
            await batch.connection.execute("rollback")
            batch.complete(jobs[0])

    assert [await state(app, job) for job in jobs] == [JobState.RUNNING] * 2


@FACES
async def test_a_call_that_joins_a_failed_transaction_is_told_of_savepoints(app: App, blocking: bool):
    (job,) = await app.claim("orders")
    said: list[str] = []

    def work() -> None:
        with job.sync.context().sync.transaction() as connection:
            with suppress(psycopg.errors.DivisionByZero):
                connection.execute("select 1 / 0")
            with pytest.raises(ConfigError) as refused:
                job.sync.extend()
            said.append(str(refused.value))

    with pytest.raises(ConfigError):
        if blocking:
            await asyncio.to_thread(work)
        async with job.context().transaction() as connection:
            with suppress(psycopg.errors.DivisionByZero):
                await connection.execute("select 1 / 0")
            with pytest.raises(ConfigError) as refused:
                await app.enqueue("order", n=3)
            said.append(str(refused.value))

    assert "savepoint" in said[0]


@FACES
async def test_a_call_that_joins_a_transaction_whose_line_was_cut_finds_the_store_unavailable(
    app: App, proxy: Proxy, blocking: bool
):
    (job,) = await app.claim("orders")

    def work() -> None:
        with job.sync.context().sync.transaction():
            proxy.cut()
            with pytest.raises(StoreUnavailable):
                job.sync.extend()

    with pytest.raises(StoreUnavailable):
        if blocking:
            await asyncio.to_thread(work)
        async with job.context().transaction():
            proxy.cut()
            with pytest.raises(StoreUnavailable):
                await job.extend()


async def test_a_savepoint_around_what_fails_lets_the_batch_commit(app: App):
    jobs = await app.claim("orders", 2, lease=timedelta(seconds=60))
    async with app.batch(jobs) as batch:
        with suppress(psycopg.errors.DivisionByZero):
            async with batch.connection.transaction():
                await batch.connection.execute("select 1 / 0")
        batch.complete(jobs[0])
    assert await state(app, jobs[0]) is JobState.COMPLETED
