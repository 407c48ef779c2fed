"""Calls that type checkers accept, and calls that they must report: those on a line with the mark at its end.

It is never run. `tests/house/test_types.py` has mypy and pyright check it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, assert_type

import psycopg

from holdfast import App, BatchContext, Call, Context, Event, EventContext, Exponential, JobHandle, JobState, TaskHandle
from holdfast.hooks import HandlerCall, JobEnd, JobStart

app = App("sqlite://")


class Receipt:
    """What a task may return."""

    number: int


@app.task
async def charge(ctx: Context, order_id: int, note: str = "") -> Receipt:
    raise NotImplementedError


@app.task(queue="mails", executor="thread", retry=Exponential(base=1))
def mail(to: str, *, copies: int = 1) -> int:
    return copies


@app.task
async def load(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return data


@app.task
def swallow(anything: Any, times: int) -> None: ...


@app.task
def nothing() -> str:
    return ""


@app.task
def only_context(ctx: Context) -> None: ...


@app.task
def context_last(order_id: int, ctx: Context) -> None: ...


@app.task(batch=100, linger=0.02)
async def charge_all(ctx: BatchContext[psycopg.AsyncConnection[Any]], calls: list[Call[int]]) -> None:
    assert_type(ctx.transaction(), AbstractAsyncContextManager[psycopg.AsyncConnection[Any]])
    for call in calls:
        assert_type(call.argument, int)
        call.fail(ValueError("no"))
        call.fails("no")  # reported


@app.task(batch=100)
def load_all(ctx: BatchContext, calls: Sequence[Call[dict[str, Any]]]) -> None: ...


@app.task
async def on_postgres(ctx: Context[psycopg.AsyncConnection[Any]], order_id: int) -> None:
    assert_type(ctx.transaction(), AbstractAsyncContextManager[psycopg.AsyncConnection[Any]])
    async with ctx.transaction() as connection:
        await connection.execute("select 1")
        await connection.exekute("select 1")  # reported


@app.task
def in_a_thread(ctx: Context[psycopg.Connection[Any]], order_id: int) -> None:
    assert_type(ctx.sync.transaction(), AbstractContextManager[psycopg.Connection[Any]])
    with ctx.sync.transaction() as connection:
        connection.exekute("select 1")  # reported


@app.task
async def on_any_store(ctx: Context) -> None:
    assert_type(ctx.transaction(), AbstractAsyncContextManager[Any])
    async with ctx.transaction() as connection:
        connection.whatever("it has")


@app.consumer("paid", category="orders", on_error="park", retry=3, start="end", executor="process")
async def paid(event: Event, ctx: EventContext[psycopg.AsyncConnection[Any]]) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("select 1")
        await connection.exekute("select 1")  # reported


@app.consumer("late", category="orders")
def late(event: Event, ctx: EventContext) -> None:
    assert_type(ctx.sync.transaction(), AbstractContextManager[Any])


async def accepted() -> None:
    assert_type(await charge.enqueue(7), JobHandle[Receipt])
    assert_type(await charge.enqueue(order_id=7, note="x"), JobHandle[Receipt])
    assert_type(await charge.options(delay=5, run_at=None).enqueue(7), JobHandle[Receipt])
    assert_type(await charge.options(unique_key="a", unique_for="waiting").enqueue(7), JobHandle[Receipt])
    await charge.options(unique=True, unique_for=timedelta(hours=1), on_conflict="replace").enqueue(7)
    assert_type(charge.sync.enqueue(7), JobHandle[Receipt])
    assert_type(charge.sync.options(priority=1).enqueue(7), JobHandle[Receipt])
    assert_type(mail.sync.enqueue("a", copies=2), JobHandle[int])
    assert_type(await nothing.enqueue(), JobHandle[str])
    assert_type(await charge_all.enqueue(7), JobHandle[Any])
    await charge_all.enqueue(argument=7)
    await charge_all.enqueue_many([charge_all.call(7)])
    charge_all.sync.enqueue(7)
    await load_all.enqueue({"a": 1})
    await load.enqueue({"a": 1})
    await load.enqueue(data={"a": 1})
    await swallow.enqueue(object(), 2)
    await swallow.enqueue(anything=1, times=2)
    await only_context.enqueue()
    await on_postgres.enqueue(order_id=7)
    await in_a_thread.enqueue(7)
    many: Sequence[JobHandle[Receipt]] = await charge.enqueue_many([charge.call(7), charge.call(order_id=8)])
    assert_type(many[0], JobHandle[Receipt])
    assert_type(await mail.enqueue_many([{"to": "a"}, ["b"]]), Sequence[JobHandle[int]])
    assert_type(mail.sync.enqueue_many([mail.sync.call("a")]), Sequence[JobHandle[int]])
    assert_type(await charge(Context[Any].__new__(Context), 7), Receipt)
    assert_type(mail("a"), int)
    kept: TaskHandle[..., Any] = charge
    await kept.enqueue(7, "whatever")
    await app.jobs.list("ready")
    await app.jobs.list(JobState.READY)


async def results(job: JobHandle[Receipt]) -> None:
    assert_type(await job.result(), Receipt)
    assert_type(job.sync.result(), Receipt)
    assert_type(await job.result(dict), dict[Any, Any])
    assert_type(job.sync.result(int), int)
    assert_type(await app.job(job.id).result(), Any)
    assert_type(await (await mail.enqueue("a")).result(), int)
    assert_type((await load.enqueue({})).sync.result(), dict[str, Any])
    str((await job.result()).total)  # reported


async def reported(ctx: Context) -> None:
    await charge.enqueue()  # reported
    await charge_all.enqueue()  # reported
    await charge_all.enqueue("7")  # reported
    await charge_all.enqueue(order=7)  # reported
    await load_all.enqueue(7)  # reported
    await charge.enqueue("7")  # reported
    await charge.enqueue(order=7)  # reported
    await charge.enqueue(7, "x", 3)  # reported
    charge.enqueue(7)  # reported
    await charge.options(delay=5).enqueue(order_id="7")  # reported
    charge.sync.enqueue(order_id="7")  # reported
    charge.sync.options(delay=5).enqueue()  # reported
    await mail.enqueue("a", 2)  # reported
    await mail.enqueue()  # reported
    mail.sync.enqueue(to=7)  # reported
    await load.enqueue(7)  # reported
    await load.enqueue()  # reported
    await swallow.enqueue(anything=1, times="2")  # reported
    await nothing.enqueue(1)  # reported
    await only_context.enqueue(1)  # reported
    await context_last.enqueue(order_id=7)  # reported
    await on_postgres.enqueue(order_id="7")  # reported
    await charge.enqueue_many([charge.call("7")])  # reported
    await charge.enqueue_many([mail.call("a")])  # reported
    mail.sync.enqueue_many([charge.sync.call(7)])  # reported
    await charge(7)  # reported
    mail(7)  # reported
    await charge.options(delay="soon").enqueue(7)  # reported
    await charge.options(prioriti=1).enqueue(7)  # reported
    await charge.options(unique=True, unique_for="ever").enqueue(7)  # reported
    await charge.options(unique=True, on_conflict="ignore").enqueue(7)  # reported
    await charge.options(unique_key=7).enqueue(7)  # reported
    await charge.delay(7)  # reported
    charge.sync.apply_async(7)  # reported
    await app.jobs.list("done")  # reported


async def wrong_result() -> JobHandle[str]:
    return await charge.enqueue(7)  # reported


@app.task(executor="fiber")  # reported
def wrong_executor() -> None: ...


@app.task(retry="3")  # reported
def wrong_retry() -> None: ...


@app.task(max_retries=3)  # reported
def wrong_setting() -> None: ...


@app.task(retry=lambda attempt, error: timedelta(seconds=attempt))
def retried_by_function() -> None: ...


@app.consumer("wrong", category="orders", on_error="explode")  # reported
def wrong_policy(event: Event) -> None: ...


@app.consumer("start", category="orders", start="middle")  # reported
def wrong_start(event: Event) -> None: ...


@app.task
def on_sqlite(ctx: Context[sqlite3.Connection]) -> None:
    with ctx.sync.transaction() as connection:
        connection.execute("select 1").fetchone()


App(broker="redis://localhost")  # reported
app.send_task("charge", 7)  # reported
app.job("x").get()  # reported


# --- hooks ------------------------------------------------------------------------------------------------------------


@app.on("job.end")
def on_end(end: JobEnd) -> None:
    assert_type(end.error, BaseException | None)


@app.on("job.start")
async def on_start(start: JobStart) -> None:
    assert_type(start.job.attempt, int)


@app.on("job.start")  # reported
def on_wrong_value(end: JobEnd) -> None: ...


@app.middleware
def around(call: HandlerCall) -> Iterator[None]:
    yield


@app.middleware
async def around_async(call: HandlerCall) -> AsyncIterator[None]:
    yield


@app.middleware  # reported
def around_nothing(call: HandlerCall) -> None: ...


def hooks() -> None:
    app.on("job.fail", on_end)
    app.on("job.retry", lambda end: str(end.delay))
    app.on("event.end", lambda end: str(end.consumer))
    app.on("worker.end", lambda end: str(end.totals))
    app.on("job.start", on_end)  # reported
    app.on("job.end", lambda end: str(end.jobs))  # reported
    app.on("job.ended", on_end)  # reported
    app.off("job.end", on_end)
