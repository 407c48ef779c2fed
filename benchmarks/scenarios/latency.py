"""Latency: from the return of an enqueue to the start of the handler, on an idle worker in another process.

One job every 20 ms on average; the pauses are drawn from 10 to 30 ms, lest they fall into step with a watcher.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from statistics import median

from benchmarks import processes
from benchmarks.bench import Bench, check
from benchmarks.raw.common import Held as RawHeld
from benchmarks.record import Record
from holdfast import App

_PATIENCE = 60.0  # seconds after which a job that never began is taken for lost


async def timed(n: int) -> None:
    """Stand for the task of the same name in the worker's process."""


def _pause(draw: random.Random) -> float:
    return draw.uniform(0.010, 0.030)


def _percentiles(returns: Sequence[int], starts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the median and the 99th percentile in ms; each job must have begun once."""
    check(sorted(number for number, _ in starts), list(range(len(returns))), "jobs whose handlers began")
    spans = sorted((began - returns[number]) / 1e6 for number, began in starts)
    return spans[len(spans) // 2], spans[min(len(spans) - 1, round(len(spans) * 0.99))]


def _ours(bench: Bench) -> tuple[float, float]:
    count = bench.sizes.latency
    with bench.store.fresh() as place:

        async def produce() -> list[int]:
            app = App(place.url)
            task = app.task(timed)
            draw = random.Random(1)
            returns: list[int] = []
            async with app:
                for number in range(count):
                    await asyncio.sleep(_pause(draw))
                    await task.enqueue(n=number)
                    returns.append(time.monotonic_ns())
            return returns

        with processes.started(1, "benchmarks.program", place.url, "serve", str(count)) as (worker,):
            worker.go()
            returns = asyncio.run(produce())
            result = worker.result(_PATIENCE)
        held = bench.store.held(place)
        check((held.completed, held.highest_attempt), (count, 1), "completed jobs and highest attempt")
        return _percentiles(returns, result["starts"])


def _raw(bench: Bench) -> tuple[float, float]:
    count = bench.sizes.latency
    with bench.store.fresh() as place:
        raw = bench.store.raw
        raw.create(place.raw)
        draw = random.Random(1)
        returns: list[int] = []
        with processes.started(1, raw.PROGRAM, place.raw, "watch", str(count)) as (worker,):
            worker.go()
            connection = raw.connect(place.raw)
            for number in range(count):
                time.sleep(_pause(draw))
                raw.one(connection, number)
                returns.append(time.monotonic_ns())
            connection.close()
            result = worker.result(_PATIENCE)
        check(raw.held(place.raw), RawHeld(count, 0, 0, count), "what the raw tables hold")
        return _percentiles(returns, [(number, began) for number, began in result["starts"]])


def p50(bench: Bench) -> float:
    """Return our own median in ms."""
    return _ours(bench)[0]


def latency(bench: Bench) -> list[Record]:
    """Both percentiles of the same runs."""
    ours: list[tuple[float, float]] = []
    raw: list[tuple[float, float]] = []
    for _ in range(bench.repeats):
        ours.append(_ours(bench))
        raw.append(_raw(bench))
    return [
        bench.record(f"latency.{name}", median(run[at] for run in ours), unit="ms", raw=median(run[at] for run in raw))
        for at, name in enumerate(("p50", "p99"))
    ]
