"""Jobs of a queue that several operators pause and resume concurrently."""

from __future__ import annotations

import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import PAUSED
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Work, calls_of

_ROUNDS = 5


@app.task(queue=PAUSED, retry=AGAIN)
async def in_paused_queue(ctx: Context) -> None:
    """Write the effect, once the queue is not paused."""
    with attempt(ctx):
        await take_effect(ctx)


async def _pause(producer: Follow, _: str, chance: random.Random) -> None:
    for _round in range(_ROUNDS):
        await producer.pause(PAUSED, lease * chance.uniform(0.1, 0.4))
        await producer.after(lease * chance.uniform(0.3, 1.0))


WORKS = (
    Work(name="in_paused_queue", weight=1, takes=Takes.TRANSACTION, draw=calls_of(in_paused_queue)),
    Work(
        name="pauses_its_queue",
        weight=0.1,
        takes=Takes.TRANSACTION,
        draw=calls_of(in_paused_queue),
        follow=_pause,
        single=True,
        most=100,
    ),
)
