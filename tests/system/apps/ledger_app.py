"""Tasks that leave a trace of every effect, for workers that are started, killed and frozen as real processes.

The table `effect` has no unique constraint: an effect that happens twice is there twice.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from tests.system.apps.standing import is_first, stop_inside

from holdfast import App, BatchContext, Call, Context

_INSERT = {
    "sqlite": "insert into effect (job_id, attempt, fence, pid) values (?, ?, ?, ?)",
    "postgresql": "insert into effect (job_id, attempt, fence, pid) values (%s, %s, %s, %s)",
}
AGAIN = 0.2  # seconds until a failed attempt is repeated

app = App()


def say(word: str, ctx: Context) -> None:
    """Tell the test, which reads standard output."""
    os.write(1, f"{word} {ctx.job.id} {os.getpid()}\n".encode())


def statement() -> str:
    return _INSERT[urlsplit(app.backend.url).scheme]


def row(ctx: Context) -> tuple[str, int, int, int]:
    return (ctx.job.id, ctx.job.attempt, ctx.fence, os.getpid())


def queue_effect(connection: Any, values: tuple[str, int, int, int]) -> None:
    """Queue it in the transaction of a store that runs no statements."""
    connection.queue("RPUSH", connection.key("effect"), " ".join(map(str, values)))


async def insert(connection: Any, values: tuple[str, int, int, int]) -> None:
    """Write an effect in an open transaction."""
    if app.backend.capabilities.queues_effects:
        queue_effect(connection, values)
    else:
        await connection.execute(statement(), values)


async def write_effect(ctx: Context) -> int:
    """Write the effect; return the result of the job."""
    ctx.result = ctx.job.used_attempts
    async with ctx.transaction() as connection:
        await insert(connection, row(ctx))
    return ctx.job.used_attempts


def write_effect_blocking(ctx: Context) -> int:
    """The same, in a thread."""
    ctx.result = ctx.job.used_attempts
    with ctx.sync.transaction() as connection:
        if app.backend.capabilities.queues_effects:
            queue_effect(connection, row(ctx))
        else:
            connection.execute(statement(), row(ctx))
    return ctx.job.used_attempts


async def gate_opens(fifo: str) -> None:
    """Wait, without blocking, until somebody has opened the FIFO for writing and closed it."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


@app.task
async def do_nothing() -> None:
    """End at once, as most jobs of a full queue do."""


@app.task(retry=AGAIN)
async def pay(ctx: Context) -> int:
    return await write_effect(ctx)


@app.task(retry=AGAIN, batch=4, linger=0.3)
async def pay_in_batches(ctx: BatchContext, calls: list[Call[int]]) -> None:
    os.write(1, f"batch of {len(calls)} in {os.getpid()}\n".encode())
    async with ctx.transaction() as connection:
        for call in calls:
            call.result = call.job.used_attempts
            await insert(connection, (call.id, call.job.attempt, call.fence, os.getpid()))


@app.task(retry=AGAIN)
def pay_in_thread(ctx: Context) -> int:
    return write_effect_blocking(ctx)


@app.task(retry=AGAIN, executor="process")
def pay_in_child(ctx: Context) -> int:
    return write_effect_blocking(ctx)


@app.task(retry=AGAIN)
async def pay_and_stop(how: str, mark: str, ctx: Context) -> None:
    """Let the first process that comes here be stopped inside its transaction; PostgreSQL only."""
    ctx.result = ctx.job.used_attempts
    async with ctx.transaction() as connection:
        await connection.execute(statement(), row(ctx))
        if is_first(mark):
            await stop_inside(connection, how)


@app.task(retry=AGAIN)
async def pay_in_own_transaction_and_stop(how: str, mark: str, ctx: Context) -> None:
    async with await psycopg.AsyncConnection.connect(os.environ["HOLDFAST_URL"].partition("?")[0]) as connection:
        await connection.execute(statement(), row(ctx))
        await ctx.complete(using=connection)
        if is_first(mark):
            await stop_inside(connection, how)


@app.task(retry=AGAIN)
async def pay_outside(path: str, ctx: Context) -> None:
    """Take effect where no transaction reaches."""
    with Path(path).open("a") as file:  # noqa: ASYNC230 - an append of one line
        file.write(" ".join(map(str, row(ctx))) + "\n")


@app.task(retry=AGAIN)
async def pay_in_order(path: str, number: int, ctx: Context) -> None:
    """Leave a trace, outside, of when it began and of when it was about to commit."""
    note = f"{number} {os.getpid()}\n".encode()
    trace = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(trace, b"began " + note)
        async with ctx.transaction() as connection:
            await insert(connection, row(ctx))
            os.write(trace, b"ended " + note)
    finally:
        os.close(trace)


@app.task(retry=AGAIN)
async def pay_late(gate: str, ctx: Context) -> int:
    say("began", ctx)
    await gate_opens(gate)
    return await write_effect(ctx)


@app.task(retry=AGAIN)
def pay_late_in_thread(gate: str, ctx: Context) -> int:
    say("began", ctx)
    Path(gate).read_bytes()
    return write_effect_blocking(ctx)


@app.task(retry=AGAIN, executor="process")
def pay_late_in_child(gate: str, ctx: Context) -> int:
    say("began", ctx)
    Path(gate).read_bytes()
    return write_effect_blocking(ctx)


@app.task(retry=AGAIN)
async def pay_outside_late(gate: str, path: str, ctx: Context) -> None:
    say("began", ctx)
    await gate_opens(gate)
    await pay_outside(path, ctx)


@app.task(retry=AGAIN)
async def pay_at_second_attempt(ctx: Context) -> int:
    if ctx.job.used_attempts == 1:
        message = "the first attempt always fails"
        raise ValueError(message)
    return await write_effect(ctx)


@app.task(retry=AGAIN)
async def pay_after_blocking_the_loop(seconds: float, ctx: Context) -> int:
    say("began", ctx)
    time.sleep(seconds)  # noqa: ASYNC251 - that is the fault
    return await write_effect(ctx)


@app.task
def kill_the_worker(how: str) -> None:
    """Take the whole process down: what runs beside it, too."""
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=AGAIN, max_attempts=2)
def devour_memory() -> None:
    """Allocate until the limit of the process refuses more."""
    hoard: list[bytes] = []
    while True:
        hoard.append(bytes(1 << 22))  # zeros that nobody has touched: taken from the limit, not from the machine


@app.task(timeout=0.5, max_attempts=1)
def hang_in_thread(ctx: Context) -> None:
    say("began", ctx)
    while True:
        time.sleep(60)


@app.task(timeout=0.5, max_attempts=1)
async def hang_in_loop(ctx: Context) -> None:
    say("began", ctx)
    while True:
        time.sleep(60)  # noqa: ASYNC251 - that is the fault


@app.task(max_attempts=1)
async def fail() -> None:
    raise ValueError
