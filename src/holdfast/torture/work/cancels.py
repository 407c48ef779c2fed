"""Jobs that an operator cancels: before they run, while they run, and too late."""

from __future__ import annotations

import asyncio
import random
import time

from holdfast.jobs.context import Context
from holdfast.model.outcome import Cancel
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect, take_effect_blocking
from holdfast.torture.work.base import Follow, Work, calls_of

_TIMEOUT = 2 * lease
_LOOK = 0.05


@app.task(queue=QUEUE, retry=AGAIN)
async def cancelled_early(ctx: Context) -> None:
    """Write the effect, unless the job is cancelled first."""
    with attempt(ctx):
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
async def cancelled_midway(ctx: Context) -> None:
    """Wait for the cancellation; write the effect if it does not come."""
    with attempt(ctx):
        await asyncio.sleep(_TIMEOUT)
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
def cancelled_midway_in_thread(ctx: Context) -> None:
    """The same in a thread, which must check for the cancellation itself."""
    with attempt(ctx):
        until = time.monotonic() + _TIMEOUT
        while time.monotonic() < until:
            if ctx.cancel_asked.wait_blocking(_LOOK):
                raise Cancel("as requested")
        take_effect_blocking(ctx)


async def _at_once(producer: Follow, job_id: str, chance: random.Random) -> None:
    await producer.after(0.5 * chance.random())
    await producer.cancel(job_id)


async def _after_a_while(producer: Follow, job_id: str, chance: random.Random) -> None:
    await producer.after(lease * chance.uniform(0.1, 1.5))
    await producer.cancel(job_id)


WORKS = (
    Work(
        name="cancelled_early",
        weight=0.2,
        takes=Takes.TRANSACTION,
        draw=calls_of(cancelled_early, delay=0.4),
        follow=_at_once,
        single=True,
    ),
    Work(
        name="cancelled_midway",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(cancelled_midway),
        follow=_after_a_while,
        single=True,
        most=400,
    ),
    Work(
        name="cancelled_midway_in_thread",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(cancelled_midway_in_thread),
        follow=_after_a_while,
        single=True,
        most=400,
    ),
)
