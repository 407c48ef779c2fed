"""Running jobs whose lease an operator resets: they run again at once, and their first holder's writes are rejected."""

from __future__ import annotations

import asyncio
import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Work, calls_of

_FIRST = 30  # before most others, however large the backlog
_MAX_ATTEMPTS = 60


@app.task(queue=QUEUE, retry=AGAIN)
async def reset_midway(ctx: Context) -> None:
    """Run for most of a lease; write the effect if the lease was not reset."""
    with attempt(ctx):
        await asyncio.sleep(0.7 * lease)
        await take_effect(ctx)


async def _once_it_runs(producer: Follow, job_id: str, chance: random.Random) -> None:
    for _ in range(_MAX_ATTEMPTS):
        if not await producer.after(lease * chance.uniform(0.1, 0.5)) or await producer.reset(job_id):
            return


WORKS = (
    Work(
        name="reset_midway",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(reset_midway, priority=_FIRST),
        follow=_once_it_runs,
        single=True,
        most=400,
    ),
)
