"""Jobs of a task that most workers do not know: they wait without blocking others, and run once a worker knows them."""

from __future__ import annotations

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE, RARE_QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Work, calls_of

UNKNOWN = "rare_task"


@app.task(name=UNKNOWN, queue=QUEUE, retry=AGAIN)
async def rare_task(ctx: Context) -> None:
    """Write the effect in a worker that knows this task."""
    with attempt(ctx):
        await take_effect(ctx)


WORKS = (
    Work(name="rare_task", weight=0.5, takes=Takes.TRANSACTION, draw=calls_of(rare_task)),
    Work(name="rare_queue", weight=0.2, takes=Takes.TRANSACTION, draw=calls_of(rare_task, queue=RARE_QUEUE)),
)
