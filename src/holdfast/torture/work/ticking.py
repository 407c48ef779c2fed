"""Jobs of schedules: a producer defines one, workers fire it, and after some time the producer removes it."""

from __future__ import annotations

import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Work, calls_of


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20)
async def ticking(ctx: Context) -> None:
    """Write the effect."""
    with attempt(ctx):
        await take_effect(ctx)


async def _schedule(producer: Follow, job_id: str, chance: random.Random) -> None:
    await producer.schedule(f"ticking-{job_id}", ticking, lease * chance.uniform(4, 12))


WORKS = (
    Work(
        name="ticking",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(ticking),
        follow=_schedule,
        single=True,
        most=50,
    ),
)
