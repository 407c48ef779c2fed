"""Most of the work: handlers that return immediately, with and without a result."""

from __future__ import annotations

import random

from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import QUEUE
from holdfast.torture.work.app import AGAIN, app
from holdfast.torture.work.attempt import attempt
from holdfast.torture.work.base import Order, Work, calls_of


@app.task(queue=QUEUE, retry=AGAIN)
async def silent() -> None:
    """Return without a record: runs without an asyncio task."""


@app.task(queue=QUEUE, retry=AGAIN)
async def plain(ctx: Context) -> None:
    """Only record the run."""
    with attempt(ctx):
        pass


@app.task(queue=QUEUE, retry=AGAIN)
def plain_in_thread(ctx: Context) -> None:
    """The same in a thread."""
    with attempt(ctx):
        pass


@app.task(queue=QUEUE, retry=AGAIN)
async def answering(number: int, ctx: Context) -> dict[str, int]:
    """Return a result."""
    with attempt(ctx):
        return {"twice": 2 * number}


def _numbers(chance: random.Random, count: int) -> Order:
    return Order(task=answering, calls=[{"number": chance.randrange(1_000_000)} for _ in range(count)])


MOST = Work(name="plain", weight=30, takes=Takes.NOTHING, draw=calls_of(plain))
"""Drawn in place of a kind whose bound is reached."""

WORKS = (
    Work(name="silent", weight=40, takes=Takes.NOTHING, draw=calls_of(silent)),
    MOST,
    Work(name="plain_in_thread", weight=2, takes=Takes.NOTHING, draw=calls_of(plain_in_thread)),
    Work(name="answering", weight=4, takes=Takes.NOTHING, draw=_numbers),
)
