"""Depth: what a claim of 100 costs with few ready jobs, and with very many of them, or in front of them.

Here `raw` is not the hand-written loop but our own claim with few ready jobs: the ratio shows how the cost
grows with depth. In the last case both sides have a limit that is reached: one with few jobs over it, one with many.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from statistics import median
from typing import Any

from benchmarks.bench import Bench, check
from benchmarks.record import Record
from benchmarks.stores import Place
from holdfast import App, Limit, TaskHandle
from holdfast.model.outcome import Completed
from holdfast.store.values import ClaimRequest, Finish, Verdict

_BATCH = 100
_CHUNK = 100_000
_WARM_UP = 3
_LEASE = timedelta(seconds=30)
_FEW_OVER = 10  # jobs over the limit on the side with few
_WHOLE_RUN = timedelta(hours=10)  # of the lease that fills the limit


async def deep(n: int) -> None:
    """Be many."""


async def near(n: int) -> None:
    """Be few, and behind the others."""


class _Side:
    """A store of a certain depth, and claims on it that leave the depth as it is."""

    def __init__(self, place: Place) -> None:
        self.app = App(place.url)
        self.deep = self.app.task(queue="deep")(deep)
        self.near = self.app.task(queue="near")(near)
        self.finished = 0

    async def fill(self, task: TaskHandle[..., Any], count: int) -> None:
        for first in range(0, count, _CHUNK):
            await task.enqueue_many([{"n": number} for number in range(first, min(count, first + _CHUNK))])

    async def claim(self, tasks: Sequence[TaskHandle[..., Any]], expected: TaskHandle[..., Any]) -> float:
        """Claim once and return the seconds; then finish what was claimed and enqueue as much again."""
        jobs = self.app.backend.jobs
        request = ClaimRequest("bench", tuple(task.name for task in tasks), _BATCH, _LEASE)
        began = time.perf_counter()
        claim = await jobs.claim(request)
        seconds = time.perf_counter() - began
        check([job.task for job in claim.jobs], [expected.name] * _BATCH, "tasks of the claimed jobs")
        verdicts = await jobs.finish([Finish(job.lease, Completed()) for job in claim.jobs])
        check(verdicts, [Verdict.DONE] * _BATCH, "verdicts on the finishes")
        self.finished += _BATCH
        await self.fill(expected, _BATCH)
        return seconds

    async def fill_limit(self) -> None:
        """Limit the queue of the deep task to one job, and hold that: all others are over the limit."""
        await self.app.queues.limit("deep", Limit(running=1))
        claim = await self.app.backend.jobs.claim(ClaimRequest("holder", (self.deep.name,), _BATCH, _WHOLE_RUN))
        check(len(claim.jobs), 1, "jobs within the limit")


async def _measure(bench: Bench, shallow: Place, far: Place) -> dict[str, tuple[float, float]]:
    """Return per case the medians of its claims and of claims with few ready jobs, made in turn."""
    few, many = _Side(shallow), _Side(far)
    medians: dict[str, tuple[float, float]] = {}

    async def case(name: str, tasks: Sequence[TaskHandle[..., Any]], expected: TaskHandle[..., Any]) -> None:
        ours: list[float] = []
        base: list[float] = []
        for _ in range(bench.sizes.claims + _WARM_UP):
            base.append(await few.claim([few.deep, few.near], few.near))
            ours.append(await many.claim(tasks, expected))
        medians[name] = median(ours[_WARM_UP:]), median(base[_WARM_UP:])

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(few.app)
        await stack.enter_async_context(many.app)
        await few.fill(few.near, bench.sizes.shallow)
        await many.fill(many.deep, bench.sizes.deep)
        await case("ready", [many.deep], many.deep)
        await many.fill(many.near, bench.sizes.shallow)
        await case("unknown_task", [many.near], many.near)
        await many.app.queues.pause("deep")
        await case("paused_queue", [many.deep, many.near], many.near)
        await many.app.queues.resume("deep")
        await many.fill_limit()
        await few.fill(few.deep, 1 + _FEW_OVER)
        await few.fill_limit()
        await case("over_limit", [many.deep, many.near], many.near)
    _check(bench, shallow, ready=bench.sizes.shallow + _FEW_OVER, finished=few.finished)
    _check(bench, far, ready=bench.sizes.deep + bench.sizes.shallow - 1, finished=many.finished)
    return medians


def _check(bench: Bench, place: Place, *, ready: int, finished: int) -> None:
    held = bench.store.held(place)
    found = (held.ids, held.ready, held.underway, held.completed)
    check(found, (ready + 1 + finished, ready, 1, finished), "ids, ready, under way and completed jobs")


def depth(bench: Bench) -> list[Record]:
    """Measure the four cases."""
    with bench.store.fresh() as shallow, bench.store.fresh() as far:
        medians = asyncio.run(_measure(bench, shallow, far))
    return [
        bench.record(f"claim.depth.{name}", 1000 * ours, unit="ms", raw=1000 * base)
        for name, (ours, base) in medians.items()
    ]
