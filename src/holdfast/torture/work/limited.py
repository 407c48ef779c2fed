"""Jobs of a task with a limit, alone or per key: at most two of them are leased at a time, over all workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from holdfast.jobs.context import Context
from holdfast.model.limits import Limit
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Order, Work, calls_of

_MOST = 2
_KEYS = 3
_NO_ARGUMENTS: Mapping[str, Any] = {}


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20, limit=Limit(running=_MOST))
async def limited(ctx: Context) -> None:
    """Last some time, so that other workers find the limit reached; then write the effect."""
    with attempt(ctx):
        await asyncio.sleep(lease * random.uniform(0.02, 0.2))  # noqa: S311 - not a secret
        await take_effect(ctx)


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20, key_limit=Limit(running=_MOST))
async def limited_by_key(ctx: Context) -> None:
    """Do the same; fail at times on the first attempt, so that a slot is freed and taken again."""
    with attempt(ctx):
        await asyncio.sleep(lease * random.uniform(0.02, 0.2))  # noqa: S311 - not a secret
        if ctx.job.used_attempts == 1 and ctx.job.seq % 7 == 0:
            raise LimitedFailure
        await take_effect(ctx)


class LimitedFailure(Exception):  # noqa: N818 - what a handler of any user raises
    """The first attempt of some jobs fails."""


def _draw(chance: random.Random, count: int) -> Order:
    key = f"key-{chance.randrange(_KEYS)}"
    return Order(task=limited_by_key, calls=[_NO_ARGUMENTS] * count, options={"limit_key": key})


WORKS = (
    Work(name="limited", weight=1, takes=Takes.TRANSACTION, draw=calls_of(limited), single=True, most=2000),
    Work(name="limited_by_key", weight=1, takes=Takes.TRANSACTION, draw=_draw, single=True, most=2000),
)
