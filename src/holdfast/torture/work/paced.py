"""Jobs of queues with a limit over all workers: of one, so many begin in a time; of the other, few run at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.app.tasks import TaskHandle
from holdfast.jobs.context import Context
from holdfast.model.limits import Limit
from holdfast.torture.events import Takes
from holdfast.torture.names import NARROW, PACED
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Order, Work

_LIMITS = {PACED: Limit(rate="4/s", burst=2), NARROW: Limit(running=2)}
_BURST = 8  # jobs that come at once
_NO_ARGUMENTS: Mapping[str, Any] = {}


@app.task(queue=PACED, retry=AGAIN, max_attempts=20)
async def paced(ctx: Context) -> None:
    """Write the effect."""
    with attempt(ctx):
        await take_effect(ctx)


@app.task(queue=NARROW, retry=AGAIN, max_attempts=20)
async def narrow(ctx: Context) -> None:
    """Last some time, so that other workers find the limit reached; then write the effect."""
    with attempt(ctx):
        await asyncio.sleep(lease * random.uniform(0.1, 0.4))  # noqa: S311 - not a secret
        await take_effect(ctx)


def _some(task: TaskHandle[..., Any]) -> Callable[[random.Random, int], Order]:
    def draw(_: random.Random, count: int) -> Order:
        return Order(task=task, calls=[_NO_ARGUMENTS] * min(count, _BURST))

    return draw


async def _limit(producer: Follow, _: str, __: random.Random) -> None:
    for queue, limit in _LIMITS.items():
        await producer.limit(queue, limit)


WORKS = tuple(
    Work(name=task.name, weight=0.3, takes=Takes.TRANSACTION, draw=_some(task), follow=_limit, most=60)
    for task in (paced, narrow)
)
