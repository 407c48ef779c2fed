"""Effects in batches: those of many jobs and all their ends in one transaction.

The handler decides about single calls by the id of the job, so that each attempt at a job decides alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.call import Call
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import batched_attempt, put, write
from holdfast.torture.work.base import COMMITS_EFFECTS, Order, Work

_RETRIES, _RELEASES, _BREAKS = "3", "7", "b"  # the last digit of a job's id


def _writes(call: Call[Any]) -> bool:
    """Decide about a call; return whether its effect is to be written."""
    if call.job.attempt > 1:
        return True
    last = call.id[-1]
    if last == _RETRIES:
        call.retry(AGAIN)
    elif last == _RELEASES:
        call.release()
    return not call.is_decided


@app.task(queue=QUEUE, retry=AGAIN, batch=20, linger=0.05, max_attempts=6)
async def transfer_in_batches(ctx: BatchContext, calls: list[Call[int]]) -> None:
    """Write the effects of a batch in the event loop; a batch with a certain job raises after its effects."""
    with ExitStack() as attempts:
        for call in calls:
            attempts.enter_context(batched_attempt(call))
        async with ctx.transaction() as connection:
            for call in calls:
                if _writes(call):
                    await write(connection, "effect", call.job)
            if any(call.id[-1] == _BREAKS and call.job.attempt == 1 for call in calls):
                raise RuntimeError("a batch with this job fails")


@app.task(queue=QUEUE, retry=AGAIN, batch=10, linger=0.05, max_attempts=6)
def transfer_in_batches_in_thread(ctx: BatchContext, calls: list[Call[int]]) -> None:
    """Write the effects of a batch in a thread."""
    with ExitStack() as attempts:
        for call in calls:
            attempts.enter_context(batched_attempt(call))
        with ctx.sync.transaction() as connection:
            for call in calls:
                if _writes(call):
                    put(connection, "effect", call.job)


def _draw(task: Any) -> Callable[[random.Random, int], Order]:
    def draw(_: random.Random, count: int) -> Order:
        return Order(task=task, calls=[{"argument": number} for number in range(count)])

    return draw


WORKS = (
    Work(
        name="transfer_in_batches",
        weight=8,
        takes=Takes.TRANSACTION,
        draw=_draw(transfer_in_batches),
        needs=COMMITS_EFFECTS,
    ),
    Work(
        name="transfer_in_batches_in_thread",
        weight=2,
        takes=Takes.TRANSACTION,
        draw=_draw(transfer_in_batches_in_thread),
        needs=COMMITS_EFFECTS,
    ),
)
