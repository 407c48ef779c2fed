"""Jobs of a task with a limit: at most two of them are leased at a time, over all workers."""

from __future__ import annotations

import asyncio
import random

from holdfast.jobs.context import Context
from holdfast.model.limits import Limit
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Work, calls_of

_MOST = 2


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20, limit=Limit(running=_MOST))
async def limited(ctx: Context) -> None:
    """Last some time, so that other workers find the limit reached; then write the effect."""
    with attempt(ctx):
        await asyncio.sleep(lease * random.uniform(0.02, 0.2))  # noqa: S311 - not a secret
        await take_effect(ctx)


WORKS = (Work(name="limited", weight=1, takes=Takes.TRANSACTION, draw=calls_of(limited), single=True, most=2000),)
