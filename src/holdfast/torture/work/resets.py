"""Running jobs whose lease a person takes away: they begin anew at once, and their first holder writes nothing."""

from __future__ import annotations

import asyncio
import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Work, calls_of


@app.task(queue=QUEUE, retry=AGAIN)
async def reset_midway(ctx: Context) -> None:
    """Last most of a lease; take effect if nobody has taken it away."""
    with attempt(ctx):
        await asyncio.sleep(0.7 * lease)
        await take_effect(ctx)


async def _after_a_while(producer: Follow, job_id: str, chance: random.Random) -> None:
    await producer.after(lease * chance.uniform(0.1, 1.0))
    await producer.reset(job_id)


WORKS = (
    Work(
        name="reset_midway",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(reset_midway),
        follow=_after_a_while,
        single=True,
        most=400,
    ),
)
