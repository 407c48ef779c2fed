"""The work of a mutant run: little of it plain, much of it under way when its worker is stopped or killed.

The works of `holdfast torture` are made for long runs, in which what is rare comes up often enough. Here every run is
short, so what a bug needs to show itself is common: attempts that last half a lease and end in the finish buffer, fail,
report progress, or write their effect late.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection
from contextlib import ExitStack
from typing import Final

import msgspec

from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.call import Call
from holdfast.jobs.context import Context
from holdfast.model.limits import Limit
from holdfast.model.outcome import Retry
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.programs import enqueueing
from holdfast.torture.work import catalogue, graph, paced, ticking
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import (
    attempt,
    batched_attempt,
    take_effect,
    take_effect_blocking,
    write,
)
from holdfast.torture.work.base import Order, Work, calls_of
from holdfast.worker import schedules

WEIGHTS: Final = {
    "silent": 6,
    "plain": 10,
    "transfer": 6,
    "transfer_in_thread": 4,
    "transfer_in_batches": 6,
    "transfer_undone_first": 6,
    "transfer_undone_first_in_thread": 2,
    "unlucky": 3,
    "unlucky_in_thread": 2,
    "sleepy": 3,
    "hopeless": 2,
    "calls_itself_off": 1,
    "cancelled_early": 2,
    "cancelled_midway": 4,
    "sent_back": 1,
    "long": 1,
    "ordered": 4,
    "unique": 20,
    "in_paused_queue": 4,
    "pauses_its_queue": 1,
    "reset_midway": 1,
}
KILLERS: Final = {"kills_its_worker": 0.01, "kills_once": 0.05}
"""The works that are taken over, and how often they come up here."""


async def pass_time() -> None:
    await asyncio.sleep(lease * random.uniform(0.2, 0.9))


@app.task(queue=QUEUE, retry=AGAIN)
async def idle(ctx: Context) -> None:
    """Last some time; its end goes through the finish buffer."""
    with attempt(ctx):
        await pass_time()


@app.task(queue=QUEUE, retry=AGAIN)
def idle_in_thread(ctx: Context) -> None:
    with attempt(ctx):
        time.sleep(lease * random.uniform(0.2, 0.9))


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=8)
async def stumbling(ctx: Context) -> None:
    """Fail late, once, and then end."""
    with attempt(ctx):
        await pass_time()
        if ctx.job.used_attempts == 1:
            raise Retry(0.5)


@app.task(queue=QUEUE, retry=AGAIN)
async def slow_transfer(ctx: Context) -> None:
    """Take effect late."""
    with attempt(ctx):
        await pass_time()
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
def slow_transfer_in_thread(ctx: Context) -> None:
    with attempt(ctx):
        time.sleep(lease * random.uniform(0.2, 0.9))
        take_effect_blocking(ctx)


@app.task(queue=QUEUE, retry=AGAIN, batch=5)
async def slow_transfer_in_batches(ctx: BatchContext, calls: list[Call[int]]) -> None:
    """Take effect late, for many jobs at once."""
    with ExitStack() as attempts:
        for call in calls:
            attempts.enter_context(batched_attempt(call))
        await pass_time()
        await pass_time()  # so that some batch is under way when a worker is stopped
        async with ctx.transaction() as connection:
            for call in calls:
                await write(connection, "effect", call.job)


@app.task(queue=QUEUE, retry=AGAIN)
async def telling(ctx: Context) -> None:
    """Report progress again and again, longer than a lease; then take effect."""
    with attempt(ctx):
        for part in range(10):
            await ctx.progress(10 * part)
            await asyncio.sleep(0.12 * lease)
        await take_effect(ctx)


def _favoured(chance: random.Random, count: int) -> Order:
    """A priority that puts a job before all others of its lane."""
    return Order(task=idle, calls=[{}] * count, options={"priority": chance.choice((0, 0, 10))})


def _batched(_: random.Random, count: int) -> Order:
    return Order(task=slow_transfer_in_batches, calls=[{"argument": 0}] * count)


def _delayed(chance: random.Random, count: int) -> Order:
    return Order(task=slow_transfer, calls=[{}] * count, options={"delay": round(chance.uniform(0.5, 2.0), 3)})


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20, limit=Limit(running=2))
async def slow_limited(ctx: Context) -> None:
    """Take effect late, two at a time."""
    with attempt(ctx):
        await pass_time()
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20, key_limit=Limit(running=2))
async def slow_by_key(ctx: Context) -> None:
    """Take effect late, two of each key at a time."""
    with attempt(ctx):
        await pass_time()
        await take_effect(ctx)


def _drawn_by_key(chance: random.Random, count: int) -> Order:
    return Order(task=slow_by_key, calls=[{}] * count, options={"limit_key": chance.choice("abcdefghijklmnop")})


OURS: Final = (
    Work(name="idle", weight=20, takes=Takes.NOTHING, draw=_favoured),
    Work(name="idle_in_thread", weight=3, takes=Takes.NOTHING, draw=calls_of(idle_in_thread)),
    Work(name="stumbling", weight=6, takes=Takes.NOTHING, draw=calls_of(stumbling)),
    Work(name="slow_transfer", weight=16, takes=Takes.TRANSACTION, draw=calls_of(slow_transfer)),
    Work(name="slow_transfer_in_thread", weight=3, takes=Takes.TRANSACTION, draw=calls_of(slow_transfer_in_thread)),
    Work(name="slow_transfer_in_batches", weight=40, takes=Takes.TRANSACTION, draw=_batched),
    Work(name="delayed", weight=4, takes=Takes.TRANSACTION, draw=_delayed),
    Work(name="telling", weight=20, takes=Takes.TRANSACTION, draw=calls_of(telling)),
)


FEATURES: Final = {
    "I28": tuple(msgspec.structs.replace(work, weight=15) for work in graph.WORKS),
    "I29": (
        Work(name="slow_limited", weight=12, takes=Takes.TRANSACTION, draw=calls_of(slow_limited)),
        Work(name="slow_by_key", weight=12, takes=Takes.TRANSACTION, draw=_drawn_by_key),
    ),
    "I30": tuple(msgspec.structs.replace(work, weight=25, most=None) for work in ticking.WORKS),
    "I31": tuple(msgspec.structs.replace(work, weight=25, most=None) for work in paced.WORKS),
}
"""Works for the mutants that break these invariants: others would only wait for them."""


def replace_works(*, killers: bool, features: Collection[str]) -> None:
    """Let the programs of this run draw these works, and those of the features."""
    known = {work.name: work for work in catalogue.WORKS}
    weights = WEIGHTS | KILLERS if killers else WEIGHTS
    taken_over = [
        msgspec.structs.replace(known[name], weight=weight, most=known[name].most if name in KILLERS else None)
        for name, weight in weights.items()
    ]
    added = [work for code, works in FEATURES.items() if code in features for work in works]
    catalogue.WORKS = (*taken_over, *OURS, *added)  # type: ignore[misc]
    schedules.POLL = 0.3  # of schedules that are defined meanwhile
    enqueueing._WEIGHTS = (30, 30, 20, 20)  # more of them in transactions of the caller's
