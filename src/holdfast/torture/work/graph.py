"""Jobs that wait for others: chains that are enqueued at once, and jobs after some of the last ones of this producer.

Some jobs fail, so that those after them are cancelled or, with `run_anyway`, run all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.app.tasks import TaskHandle
from holdfast.jobs.context import Context
from holdfast.torture.events import Takes
from holdfast.torture.names import IN_GRAPHS, QUEUE
from holdfast.torture.work.app import AGAIN, app, lease
from holdfast.torture.work.attempt import attempt, take_effect
from holdfast.torture.work.base import Follow, Order, Work
from holdfast.torture.work.endings import Unlucky

_CHAIN = 3
_FAILS = "0"  # the last digit of a job's id
_MOST_PARENTS = 3
_ROOTS = _ANYWAY = 0.3
_NO_ARGUMENTS: Mapping[str, Any] = {}
_latest: deque[str] = deque(maxlen=6)  # jobs of this producer, which may have ended or not


async def _last(ctx: Context) -> None:
    await asyncio.sleep(lease * random.uniform(0, 0.2))  # noqa: S311 - not a secret
    if ctx.job.id[-1] in _FAILS:
        raise Unlucky


@app.task(name=IN_GRAPHS[0], queue=QUEUE, retry=AGAIN, max_attempts=2)
async def in_graph(ctx: Context) -> None:
    """Last some time, and end through the finish buffer: the worker settles the children."""
    with attempt(ctx):
        await _last(ctx)


@app.task(name=IN_GRAPHS[1], queue=QUEUE, retry=AGAIN, max_attempts=2)
async def transfer_in_graph(ctx: Context) -> None:
    """Last some time, and end in a transaction of the handler: any worker settles the children."""
    with attempt(ctx):
        await _last(ctx)
        await take_effect(ctx)


def _after_latest(task: TaskHandle[..., Any]) -> Callable[[random.Random, int], Order]:
    def draw(chance: random.Random, count: int) -> Order:
        # As many draws in any case: what is drawn next must not depend on replies.
        is_root, anyway = chance.random() < _ROOTS, chance.random() < _ANYWAY
        picked = [chance.random() for _ in range(_MOST_PARENTS)][: chance.randint(1, _MOST_PARENTS)]
        after = list(dict.fromkeys(_latest[int(part * len(_latest))] for part in picked)) if _latest else []
        options = {} if is_root or not after else {"after": after, "run_anyway": anyway}
        return Order(task=task, calls=[_NO_ARGUMENTS] * count, options=options)

    return draw


async def _remember(_: Follow, job_id: str, __: random.Random) -> None:
    _latest.append(job_id)


WORKS = (
    Work(
        name=in_graph.name,
        weight=0.7,
        takes=Takes.NOTHING,
        draw=_after_latest(in_graph),
        chain=_CHAIN,
        follow=_remember,
    ),
    Work(
        name=transfer_in_graph.name,
        weight=0.7,
        takes=Takes.TRANSACTION,
        draw=_after_latest(transfer_in_graph),
        chain=_CHAIN,
        follow=_remember,
    ),
)
