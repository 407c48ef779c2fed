"""Failed jobs that an operator retries: they run again with a fresh budget."""

from __future__ import annotations

import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Work, calls_of
from holdfast.torture.work.endings import Unlucky


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=1)
async def sent_back(ctx: Context) -> None:
    """Fail at the first claim; write the effect at any later one."""
    with attempt(ctx):
        if ctx.job.attempt == 1:
            raise Unlucky
        await take_effect(ctx)


async def _later(producer: Follow, job_id: str, chance: random.Random) -> None:
    await producer.after(lease * chance.uniform(0.5, 1.5))
    await producer.retry(job_id)


WORKS = (
    Work(
        name="sent_back",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(sent_back),
        follow=_later,
        single=True,
        most=400,
    ),
)
