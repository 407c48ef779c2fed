"""Jobs longer than the lease, with progress and extension; and jobs that block the event loop for a while."""

from __future__ import annotations

import asyncio
import time

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect, take_effect_blocking
from holdfast.torture.work.base import Work, calls_of

_PARTS = 5


@app.task(queue=QUEUE, retry=AGAIN)
async def long(ctx: Context) -> None:
    """Run for one and a half leases, and record progress."""
    with attempt(ctx):
        for part in range(_PARTS):
            await ctx.progress(100 * part / _PARTS, f"part {part} of {_PARTS}")
            await asyncio.sleep(1.5 * lease / _PARTS)
        await ctx.extend(2 * lease)
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
def long_in_thread(ctx: Context) -> None:
    """The same in a thread."""
    with attempt(ctx):
        for _ in range(_PARTS):
            time.sleep(1.5 * lease / _PARTS)
        ctx.sync.extend()
        take_effect_blocking(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
async def blocking(ctx: Context) -> None:
    """Block the event loop of the worker, as careless code does."""
    with attempt(ctx):
        time.sleep(0.2 * lease)  # noqa: ASYNC251 - that is the fault
        await take_effect(ctx)


WORKS = (
    Work(name="long", weight=0.1, takes=Takes.TRANSACTION, draw=calls_of(long), single=True, most=400),
    Work(
        name="long_in_thread", weight=0.1, takes=Takes.TRANSACTION, draw=calls_of(long_in_thread), single=True, most=400
    ),
    Work(name="blocking", weight=0.05, takes=Takes.TRANSACTION, draw=calls_of(blocking), single=True, most=100),
)
