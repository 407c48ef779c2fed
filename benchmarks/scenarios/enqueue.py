"""Enqueue: many in one call, one by one, one by one from blocking code, and one by one by a hundred callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import program
from benchmarks.bench import Bench, check
from benchmarks.record import Record
from benchmarks.stores import Inserter
from holdfast import TaskHandle

_CALLERS = 100
_EACH_CALL = 1000


def _ours(bench: Bench, count: int, enqueue: Callable[[TaskHandle[..., Any]], Awaitable[None]]) -> float:
    """Time an async enqueue into a fresh store; jobs a second."""
    with bench.store.fresh() as place:

        async def run() -> float:
            app, task = program.make_app(place.url)
            async with app:
                began = time.perf_counter()
                await enqueue(task)
                return time.perf_counter() - began

        seconds = asyncio.run(run())
        _check_ours(bench.store.held(place), count)
    return count / seconds


def _check_ours(held: Any, count: int) -> None:
    check((held.ids, held.ready), (count, count), "distinct ids and ready jobs after the enqueue")


def _raw(bench: Bench, count: int, enqueue: Callable[[Inserter], None]) -> float:
    with bench.store.fresh() as place, bench.store.inserting(place) as inserter:
        began = time.perf_counter()
        enqueue(inserter)
        seconds = time.perf_counter() - began
        held = inserter.held()
        check((held.ids, held.ready), (count, count), "distinct ids and ready jobs after the raw insert")
    return count / seconds


def _raw_one_by_one(bench: Bench) -> float:
    count = bench.sizes.single

    def insert(inserter: Inserter) -> None:
        for number in range(count):
            inserter.one(number)

    return _raw(bench, count, insert)


async def _one_by_one(task: TaskHandle[..., Any], numbers: range) -> None:
    for number in numbers:
        await task.enqueue(n=number)


def bulk_rate(bench: Bench) -> float:
    """Return our own rate by one call; the list of arguments is there beforehand."""
    calls = [{"n": number} for number in range(bench.sizes.jobs)]

    async def enqueue(task: TaskHandle[..., Any]) -> None:
        await task.enqueue_many(calls)

    return _ours(bench, bench.sizes.jobs, enqueue)


def one_rate(bench: Bench) -> float:
    """Return our own rate one by one."""
    count = bench.sizes.single
    return _ours(bench, count, lambda task: _one_by_one(task, range(count)))


def bulk(bench: Bench) -> list[Record]:
    """All jobs in one call, all or none."""
    count = bench.sizes.jobs
    return [
        bench.compare(
            "enqueue.bulk",
            lambda: bulk_rate(bench),
            lambda: _raw(bench, count, lambda inserter: inserter.bulk(count)),
            unit="jobs/s",
        )
    ]


def one(bench: Bench) -> list[Record]:
    """Each awaited before the next: what one caller gets, a sync of the disk per job."""
    return [bench.compare("enqueue.one", lambda: one_rate(bench), lambda: _raw_one_by_one(bench), unit="jobs/s")]


def hundred(bench: Bench) -> list[Record]:
    """A hundred callers in one process, each with one enqueue under way. `raw` is our own rate of a single caller."""
    share = max(1, 4 * bench.sizes.single // _CALLERS)

    async def together(task: TaskHandle[..., Any]) -> None:
        await asyncio.gather(*(_one_by_one(task, range(share)) for _ in range(_CALLERS)))

    return [
        bench.compare(
            "enqueue.hundred",
            lambda: _ours(bench, share * _CALLERS, together),
            lambda: one_rate(bench),
            unit="jobs/s",
        )
    ]


def unique(bench: Bench) -> list[Record]:
    """A thousand jobs in each call, each with a unique key that is free. `raw` is our own rate without keys."""
    count = max(_EACH_CALL, bench.sizes.jobs // _EACH_CALL * _EACH_CALL)

    def rate(**options: Any) -> float:
        async def enqueue(task: TaskHandle[..., Any]) -> None:
            chosen = task.options(**options)
            for first in range(0, count, _EACH_CALL):
                await chosen.enqueue_many([{"n": number} for number in range(first, first + _EACH_CALL)])

        return _ours(bench, count, enqueue)

    return [bench.compare("enqueue.unique", lambda: rate(unique=True), rate, unit="jobs/s")]


def unique_one(bench: Bench) -> list[Record]:
    """The same one by one."""
    count = bench.sizes.single

    async def enqueue(task: TaskHandle[..., Any]) -> None:
        await _one_by_one(task.options(unique=True), range(count))

    return [
        bench.compare(
            "enqueue.unique_one", lambda: _ours(bench, count, enqueue), lambda: one_rate(bench), unit="jobs/s"
        )
    ]


def sync_one(bench: Bench) -> list[Record]:
    """The same from blocking code, through `.sync`."""
    count = bench.sizes.single

    def ours() -> float:
        with bench.store.fresh() as place:
            app, task = program.make_app(place.url)
            app.sync.opened()
            blocking = task.sync
            began = time.perf_counter()
            for number in range(count):
                blocking.enqueue(n=number)
            seconds = time.perf_counter() - began
            app.sync.close()
            app.portal.close()
            _check_ours(bench.store.held(place), count)
        return count / seconds

    return [bench.compare("enqueue.sync_one", ours, lambda: _raw_one_by_one(bench), unit="jobs/s")]
