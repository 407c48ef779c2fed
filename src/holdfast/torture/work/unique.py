"""Jobs with unique keys that all producers share: while one of a key is unfinished, every caller gets that one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Order, Work

_KEYS = 2
_NO_ARGUMENTS: Mapping[str, Any] = {}


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20)
async def unique(ctx: Context) -> None:
    """Last some time, so that other callers find the key held by a running job; then write the effect."""
    with attempt(ctx):
        await asyncio.sleep(lease * random.uniform(0.3, 0.9))  # noqa: S311 - not a secret
        await take_effect(ctx)


def _draw(chance: random.Random, count: int) -> Order:
    key = f"unique-{chance.randrange(_KEYS)}"
    return Order(task=unique, calls=[_NO_ARGUMENTS] * count, options={"unique_key": key})


WORKS = (Work(name="unique", weight=1, takes=Takes.TRANSACTION, draw=_draw, single=True),)
