"""Jobs of one order key: one at a time, with effects in the order of the enqueues."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import Any

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import ORDERED, QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Order, Work

_KEYS = 20
_NO_ARGUMENTS: Mapping[str, Any] = {}


@app.task(name=ORDERED, queue=QUEUE, retry=AGAIN, max_attempts=20)
async def ordered(ctx: Context) -> None:
    """Write the effect after earlier jobs of the same key; fail at times on the first attempt."""
    with attempt(ctx):
        if ctx.job.used_attempts == 1 and ctx.job.seq % 7 == 0:
            raise OrderedFailure
        await take_effect(ctx)


class OrderedFailure(Exception):  # noqa: N818 - what a handler of any user raises
    """The first attempt of some jobs fails: later jobs of the key must wait."""


def _draw(chance: random.Random, count: int) -> Order:
    # Each producer has its own keys: concurrent enqueues have no defined order.
    key = f"key-{os.getpid()}-{chance.randrange(_KEYS)}"
    return Order(task=ordered, calls=[_NO_ARGUMENTS] * count, options={"order_key": key})


WORKS = (Work(name=ORDERED, weight=1, takes=Takes.TRANSACTION, draw=_draw, in_turn=True),)
