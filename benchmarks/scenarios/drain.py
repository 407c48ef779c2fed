"""Drain: no-op jobs that wait, done by fresh worker processes.

Counted as done in the database, and timed by its ledger: from the first claim to the last completion. Start-up, and the
sync of the very last commit, are not in it.
"""

from __future__ import annotations

import asyncio

from benchmarks import processes, program
from benchmarks.bench import Bench, check
from benchmarks.raw import sqlite as raw_sqlite
from benchmarks.record import Record
from benchmarks.stores import Held, Place

_CHUNK = 100_000


async def fill(place: Place, count: int) -> None:
    """Enqueue jobs, some at a time, so that this process stays small."""
    app, task = program.make_app(place.url)
    async with app:
        for first in range(0, count, _CHUNK):
            await task.enqueue_many([{"n": number} for number in range(first, min(count, first + _CHUNK))])


def check_done(bench: Bench, place: Place, *, count: int, handled: int) -> None:
    """Fail unless each job was handled once and completed once."""
    check(handled, count, "handlers that were called")
    wanted = Held(ids=count, ready=0, underway=0, completed=count, given_up=0, highest_attempt=1)
    check(bench.store.held(place), wanted, "what the store holds after the drain")


def fill_raw(place: Place, count: int) -> None:
    """The same for the yardstick."""
    raw_sqlite.create(place.path)
    connection = raw_sqlite.connect(place.path)
    for first in range(0, count, _CHUNK):
        raw_sqlite.bulk(connection, min(_CHUNK, count - first))
    connection.close()


def check_raw_done(place: Place, *, count: int, handled: int) -> None:
    """The same for the yardstick."""
    check(handled, count, "raw handlers that were called")
    wanted = raw_sqlite.Held(ids=count, ready=0, leased=0, done=count)
    check(raw_sqlite.held(place.path), wanted, "what the raw tables hold after the drain")


def _ours(bench: Bench, workers: int) -> float:
    count = bench.sizes.jobs
    with bench.store.fresh() as place:
        asyncio.run(fill(place, count))
        told = processes.run(workers, "benchmarks.program", "drain", place.url)
        check_done(bench, place, count=count, handled=sum(one["handled"] for one in told))
        return count / bench.store.span(place)


def _raw(bench: Bench, workers: int) -> float:
    count = bench.sizes.jobs
    with bench.store.fresh() as place:
        fill_raw(place, count)
        told = processes.run(workers, "benchmarks.raw.sqlite", "drain", place.path)
        check_raw_done(place, count=count, handled=sum(one["handled"] for one in told))
        return count / raw_sqlite.span(place.path)


def one(bench: Bench) -> list[Record]:
    """One worker process."""
    return [bench.compare("drain.one", lambda: _ours(bench, 1), lambda: _raw(bench, 1), unit="jobs/s")]


def two(bench: Bench) -> list[Record]:
    """Two worker processes, set off together."""
    return [bench.compare("drain.two", lambda: _ours(bench, 2), lambda: _raw(bench, 2), unit="jobs/s")]
