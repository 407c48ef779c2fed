"""A verb that joins a handler's or a caller's transaction takes effect as a whole, or not at all, when it fails.

The server undoes only the statement that has failed, and a handler or a caller may catch the error and commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pymysql
import pytest
from tests.mysql.test_using import KINDS, awaited
from tests.servers import mysql

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.driver import BlockingConnection, VerbConnection
from holdfast.backends.mysql.using import drivers
from holdfast.backends.sql.steps import run
from holdfast.errors import StoreUnavailable
from holdfast.model.job import JobState
from holdfast.store.steps import Steps
from holdfast.testing.conformance.base import a_job, claim, enqueue, hold_one, state_of
from holdfast.testing.conformance.parents import after

LIMIT = timedelta(seconds=20)
KILLED = pymysql.OperationalError(1317, "Query execution was interrupted")
DUPLICATE = pymysql.IntegrityError(1062, "Duplicate entry")


def fail_at(*parts: str, error: Exception = KILLED, times: int = 1) -> Callable[[list[str]], None]:
    """Raise an error for a message that has one of these parts, this many times."""
    left = times

    def check(texts: list[str]) -> None:
        nonlocal left
        if left and any(part in text for part in parts for text in texts):
            left -= 1
            raise error

    return check


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], None]], None]:
    """Make the connections of handlers and of callers fail."""

    def fail(check: Callable[[list[str]], None]) -> None:
        ask, ask_blocking = VerbConnection.ask, BlockingConnection.ask
        of_callers, of_callers_async = drivers.ask, drivers.ask_async

        async def asked(self: VerbConnection, texts: list[str]) -> Any:
            check(texts)
            return await ask(self, texts)

        def asked_blocking(self: BlockingConnection, texts: list[str]) -> Any:
            check(texts)
            return ask_blocking(self, texts)

        def asked_by_caller(raw: Any, text: str, *rest: Any) -> Any:
            check([text])
            return of_callers(raw, text, *rest)

        async def asked_by_async_caller(raw: Any, text: str, *rest: Any) -> Any:
            check([text])
            return await of_callers_async(raw, text, *rest)

        monkeypatch.setattr(VerbConnection, "ask", asked)
        monkeypatch.setattr(BlockingConnection, "ask", asked_blocking)
        monkeypatch.setattr(drivers, "ask", asked_by_caller)
        monkeypatch.setattr(drivers, "ask_async", asked_by_async_caller)

    return fail


def jobs_in(url: str) -> int:
    return int(mysql.run(url, "select count(*) from holdfast_job")[0][0])


@asynccontextmanager
async def handling(backend: MysqlBackend, **options: Any) -> AsyncIterator[Any]:
    """A handler's transaction, which completes its job at the end."""
    job = await hold_one(backend)
    async with backend.begin(job.lease, limit=LIMIT, **options) as transaction:
        yield transaction
        await transaction.complete(job.lease, None)
    assert await state_of(backend, job.id) is JobState.COMPLETED


async def test_an_enqueue_that_fails_half_way_in_a_handler_leaves_nothing_of_its_job(
    backend: MysqlBackend, url: str, failing: Any
):
    new, other = a_job(), a_job()
    async with handling(backend):
        await backend.jobs.enqueue([other])
        failing(fail_at("insert into holdfast_ready"))
        with suppress(StoreUnavailable):
            await backend.jobs.enqueue([new])
    assert jobs_in(url) == 2
    assert await backend.jobs.enqueue([new]) == [True]
    assert {job.id for job in await claim(backend)} == {new.id, other.id}


async def test_a_verb_that_fails_half_way_in_a_thread_leaves_nothing_of_it(
    backend: MysqlBackend, url: str, failing: Any
):
    job = await hold_one(backend)
    mysql.run(url, "create table effect (x int) engine = innodb")

    def verb() -> Steps[None]:
        yield from run("leave_running", seq=job.seq)
        yield from run("drop_order_key", key_id=-1)

    def handle() -> None:
        with backend.begin_blocking(job.lease, limit=LIMIT) as opened:
            transaction: Any = opened
            transaction.connection.execute("insert into effect values (1)")
            with suppress(pymysql.OperationalError):
                transaction.end_with(verb())

    failing(fail_at("holdfast_key_head"))
    await asyncio.to_thread(handle)
    assert mysql.run(url, "select count(*) from effect") == [(1,)]
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_a_handler_whose_failed_verb_cannot_be_undone_commits_nothing(
    backend: MysqlBackend, url: str, failing: Any
):
    job = await hold_one(backend)
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with backend.begin(job.lease, limit=LIMIT):
            failing(fail_at("insert into holdfast_ready", "rollback to savepoint", times=2))
            with suppress(StoreUnavailable):
                await backend.jobs.enqueue([a_job()])
    assert jobs_in(url) == 1
    assert await state_of(backend, job.id) is JobState.RUNNING


async def test_a_message_that_was_never_sent_undoes_no_earlier_verb(backend: MysqlBackend, failing: Any):
    earlier, later = a_job(), a_job()
    async with handling(backend):
        await backend.jobs.enqueue([earlier])
        failing(fail_at("savepoint"))
        with suppress(StoreUnavailable):
            await backend.jobs.enqueue([later])
    assert [job.id for job in await claim(backend)] == [earlier.id]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_verbs_that_a_handler_runs_at_once_follow_one_another(
    backend: MysqlBackend, failing: Any, isolation: str
):
    """Otherwise the undoing of one would undo a part of the other."""
    parent = a_job()
    new = [after(parent.id), a_job(), after(parent.id), a_job()]
    async with handling(backend, isolation=isolation):
        await backend.jobs.enqueue([parent])
        failing(fail_at("insert into holdfast_ready"))
        made = await asyncio.gather(*(backend.jobs.enqueue([job]) for job in new), return_exceptions=True)
    there = {job.id for job in await backend.insight.states([job.id for job in new])}
    assert {job.id for job, answer in zip(new, made, strict=True) if answer == [True]} == there
    assert [type(answer) for answer in made].count(StoreUnavailable) == 1


async def test_a_cancellation_during_a_look_beside_the_transaction_undoes_the_verb(
    backend: MysqlBackend, url: str, monkeypatch: pytest.MonkeyPatch
):
    """The look comes after the insert of the job: it finds the parent, which is linked to it."""
    looks = asyncio.Event()
    loop = asyncio.get_running_loop()
    job = await hold_one(backend)
    (parent,) = await enqueue(backend, a_job())
    child = after(parent)
    async with backend.begin(job.lease, limit=LIMIT, isolation="repeatable read") as transaction:
        there: Any = transaction
        place = there._place

        def slowly(texts: list[str]) -> Any:
            if any("turn, priority from holdfast_job" in text for text in texts):
                loop.call_soon_threadsafe(looks.set)
            return place.beside(texts)

        monkeypatch.setattr(there, "_place", place._replace(beside=slowly))
        enqueueing = asyncio.ensure_future(backend.jobs.enqueue([child]))
        async with asyncio.timeout(10):
            await looks.wait()
        enqueueing.cancel()
        with suppress(asyncio.CancelledError):
            await enqueueing
    assert await backend.insight.states([child.id]) == []
    assert await backend.jobs.enqueue([child]) == [True]


async def test_a_verb_that_is_repeated_after_a_duplicate_starts_from_nothing(backend: MysqlBackend, url: str):
    """The first attempt has written a part before another transaction's row appears."""
    job = await hold_one(backend)
    starts = 0

    def verb() -> Steps[int]:
        nonlocal starts
        starts += 1
        yield from run("set_turns", seq=-1, turn=1)
        changed = yield from run("leave_running", seq=job.seq)
        if starts == 1:
            raise DUPLICATE
        return changed

    async with backend.begin(job.lease, limit=LIMIT):
        assert await backend._parts.here.runner.write(verb) == 1
    assert starts == 2


@pytest.mark.parametrize("kind", ["pymysql", "mysqlclient", "asyncmy", "sqlalchemy", "sqlalchemy-async"])
async def test_an_enqueue_that_fails_half_way_leaves_nothing_in_the_callers_transaction(
    backend: MysqlBackend, url: str, kind: str, failing: Any
):
    new, other = a_job(), a_job()
    async with KINDS[kind](url) as (using, commit, _):
        assert await backend.join(using).enqueue([other]) == [True]
        failing(fail_at("insert into holdfast_ready"))
        with pytest.raises(StoreUnavailable):
            await backend.join(using).enqueue([new])
        await awaited(commit)
    assert jobs_in(url) == 1
    assert await backend.jobs.enqueue([new]) == [True]


@pytest.mark.parametrize("kind", ["pymysql", "mysqlclient", "asyncmy"])
async def test_a_caller_whose_failed_verb_cannot_be_undone_can_commit_nothing(
    backend: MysqlBackend, url: str, kind: str, failing: Any
):
    async with KINDS[kind](url) as (using, commit, _):
        failing(fail_at("insert into holdfast_ready", "rollback to savepoint", times=2))
        with pytest.raises(StoreUnavailable):
            await backend.join(using).enqueue([a_job()])
        with pytest.raises(Exception):  # noqa: B017, PT011 - each driver has its own
            await awaited(commit)
    assert jobs_in(url) == 0
