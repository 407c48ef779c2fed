"""Enqueue: many in one call, one by one, and one by one from blocking code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import program
from benchmarks.bench import Bench, check
from benchmarks.raw import sqlite as raw_sqlite
from benchmarks.record import Record
from holdfast import TaskHandle


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


def _raw(bench: Bench, count: int, enqueue: Callable[[Any], None]) -> float:
    with bench.store.fresh() as place:
        raw_sqlite.create(place.path)
        connection = raw_sqlite.connect(place.path)
        began = time.perf_counter()
        enqueue(connection)
        seconds = time.perf_counter() - began
        connection.close()
        held = raw_sqlite.held(place.path)
        check((held.ids, held.ready), (count, count), "distinct ids and ready jobs after the raw insert")
    return count / seconds


def _raw_one_by_one(bench: Bench) -> float:
    count = bench.sizes.single

    def insert(connection: Any) -> None:
        for number in range(count):
            raw_sqlite.one(connection, number)

    return _raw(bench, count, insert)


def bulk(bench: Bench) -> list[Record]:
    """All jobs in one call, all or none; the list of arguments is there beforehand."""
    count = bench.sizes.jobs
    calls = [{"n": number} for number in range(count)]

    async def enqueue(task: TaskHandle[..., Any]) -> None:
        await task.enqueue_many(calls)

    return [
        bench.compare(
            "enqueue.bulk",
            lambda: _ours(bench, count, enqueue),
            lambda: _raw(bench, count, lambda connection: raw_sqlite.bulk(connection, count)),
            unit="jobs/s",
        )
    ]


def one(bench: Bench) -> list[Record]:
    """Each awaited before the next: what one caller gets, a sync of the disk per job."""
    count = bench.sizes.single

    async def enqueue(task: TaskHandle[..., Any]) -> None:
        for number in range(count):
            await task.enqueue(n=number)

    return [
        bench.compare(
            "enqueue.one", lambda: _ours(bench, count, enqueue), lambda: _raw_one_by_one(bench), unit="jobs/s"
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
