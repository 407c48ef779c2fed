"""Depth: what a claim of 100 costs with few ready jobs, and with very many of them, or in front of them.

Here `raw` is not the hand-written loop but our own claim with few ready jobs: the ratio shows how the cost
grows with depth.
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
from holdfast import App, TaskHandle
from holdfast.model.outcome import Completed
from holdfast.store.values import ClaimRequest, Finish, Verdict

_BATCH = 100
_CHUNK = 100_000
_WARM_UP = 3
_LEASE = timedelta(seconds=30)


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
    _check(bench, shallow, count=bench.sizes.shallow, finished=few.finished)
    _check(bench, far, count=bench.sizes.deep + bench.sizes.shallow, finished=many.finished)
    return medians


def _check(bench: Bench, place: Place, *, count: int, finished: int) -> None:
    held = bench.store.held(place)
    found = (held.ids, held.ready, held.underway, held.completed)
    check(found, (count + finished, count, 0, finished), "ids, ready, under way and completed jobs")


def depth(bench: Bench) -> list[Record]:
    """Measure the three cases."""
    with bench.store.fresh() as shallow, bench.store.fresh() as far:
        medians = asyncio.run(_measure(bench, shallow, far))
    return [
        bench.record(f"claim.depth.{name}", 1000 * ours, unit="ms", raw=1000 * base)
        for name, (ours, base) in medians.items()
    ]
