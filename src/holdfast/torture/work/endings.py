"""Attempts that end in every other way: exception, `Retry`, `Snooze`, `Cancel`, timeout."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from holdfast.app.tasks import TaskHandle
from holdfast.jobs.context import Context
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import (
    attempt,
    take_effect,
    take_effect_and_fail,
    take_effect_and_fail_blocking,
    take_effect_blocking,
)
from holdfast.torture.work.base import Order, Work, calls_of

_LIMIT = 0.3  # seconds
_ROUNDS = 4


class Unlucky(Exception):  # noqa: N818 - what a handler of any user raises
    """The handler fails, as drawn."""


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=8)
async def unlucky(times: int, ctx: Context) -> None:
    """Fail a number of times, alternately with and without an effect that is rolled back; then write the effect."""
    with attempt(ctx):
        if ctx.job.used_attempts <= times:
            if ctx.job.used_attempts % 2:
                await take_effect_and_fail(ctx, Unlucky())
            raise Unlucky
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=8)
def unlucky_in_thread(times: int, ctx: Context) -> None:
    """The same in a thread, with the effect rolled back in the failing attempts."""
    with attempt(ctx):
        if ctx.job.used_attempts <= times:
            take_effect_and_fail_blocking(ctx, Retry(0.1))
        take_effect_blocking(ctx)


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=2)
async def hopeless(ctx: Context) -> None:
    """Fail every time, after the effect was written."""
    with attempt(ctx):
        await take_effect_and_fail(ctx, Unlucky())


@app.task(queue=QUEUE, retry=AGAIN)
async def sleepy(times: int, ctx: Context) -> None:
    """Snooze a number of times, at no cost; then write the effect."""
    with attempt(ctx):
        if ctx.job.attempt <= times:
            raise Snooze(0.1)
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN)
async def calls_itself_off(ctx: Context) -> None:
    """Cancel the job from inside the handler."""
    with attempt(ctx):
        raise Cancel("no longer needed")


@app.task(queue=QUEUE, retry=AGAIN, timeout=_LIMIT, max_attempts=2)
async def too_slow(ctx: Context) -> None:
    """Run into the timeout."""
    with attempt(ctx):
        await asyncio.sleep(20 * _LIMIT)


@app.task(queue=QUEUE, retry=AGAIN, timeout=_LIMIT, max_attempts=2)
def too_slow_in_thread(ctx: Context) -> None:
    """Exceed the timeout in a thread, which cannot be interrupted: it checks the clock itself, too late."""
    with attempt(ctx):
        time.sleep(2 * _LIMIT)


@app.task(queue=QUEUE, retry=AGAIN, timeout=_LIMIT, max_attempts=2, executor="process")
def too_slow_in_process(ctx: Context) -> None:
    """Be killed at the timeout."""
    with attempt(ctx):
        time.sleep(20 * _LIMIT)


def _times(task: TaskHandle[..., Any]) -> Callable[[random.Random, int], Order]:
    def draw(chance: random.Random, count: int) -> Order:
        return Order(task=task, calls=[{"times": chance.randint(1, _ROUNDS)} for _ in range(count)])

    return draw


WORKS = (
    Work(name="unlucky", weight=1, takes=Takes.TRANSACTION, draw=_times(unlucky)),
    Work(name="unlucky_in_thread", weight=0.5, takes=Takes.TRANSACTION, draw=_times(unlucky_in_thread)),
    Work(name="sleepy", weight=0.5, takes=Takes.TRANSACTION, draw=_times(sleepy)),
    Work(name="hopeless", weight=0.3, takes=Takes.NOTHING, draw=calls_of(hopeless)),
    Work(name="calls_itself_off", weight=0.3, takes=Takes.NOTHING, draw=calls_of(calls_itself_off)),
    Work(name="too_slow", weight=0.1, takes=Takes.NOTHING, draw=calls_of(too_slow), single=True, most=1000),
    Work(
        name="too_slow_in_thread",
        weight=0.05,
        takes=Takes.NOTHING,
        draw=calls_of(too_slow_in_thread),
        single=True,
        most=300,
    ),
    Work(
        name="too_slow_in_process",
        weight=0.05,
        takes=Takes.NOTHING,
        draw=calls_of(too_slow_in_process),
        single=True,
        most=300,
    ),
)
