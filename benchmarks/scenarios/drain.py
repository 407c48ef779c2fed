"""Drain: no-op jobs that wait, done by fresh worker processes.

Counted as done in the database, and timed by its ledger: from the first claim to the last completion. Start-up, and the
sync of the very last commit, are not in it. What it took of the client and of the server is taken from the same runs.
"""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any

from benchmarks import processes, program
from benchmarks.bench import Bench, check
from benchmarks.raw.common import Held as RawHeld
from benchmarks.record import Record
from benchmarks.stores import Held, Place

_CHUNK = 100_000

COSTS = {
    "client_cpu": ("µs/job", 1e6),
    "server_cpu": ("µs/job", 1e6),
    "wal": ("bytes/job", 1),
    "commits": ("commits/job", 1),
}
"""Of each thing that is spent: its unit for a job, and how many of those units one is."""


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


def fill_raw(bench: Bench, place: Place, count: int) -> None:
    """The same for the yardstick."""
    raw = bench.store.raw
    raw.create(place.raw)
    connection = raw.connect(place.raw)
    for first in range(0, count, _CHUNK):
        raw.bulk(connection, min(_CHUNK, count - first))
    connection.close()


def check_raw_done(bench: Bench, place: Place, *, count: int, handled: int) -> None:
    """The same for the yardstick."""
    check(handled, count, "raw handlers that were called")
    wanted = RawHeld(ids=count, ready=0, leased=0, done=count)
    check(bench.store.raw.held(place.raw), wanted, "what the raw tables hold after the drain")


class _Side:
    """The rates of one side, and what its runs have cost."""

    def __init__(self, bench: Bench, workers: int) -> None:
        self._bench = bench
        self._workers = workers
        self._costs: dict[str, list[float]] = {}

    def ours(self) -> float:
        bench, count = self._bench, self._bench.sizes.jobs
        with bench.store.fresh() as place:
            asyncio.run(fill(place, count))
            told = self._run("benchmarks.program", place.url, place)
            check_done(bench, place, count=count, handled=sum(one["handled"] for one in told))
            return count / bench.store.span(place)

    def raw(self) -> float:
        bench, count = self._bench, self._bench.sizes.jobs
        with bench.store.fresh() as place:
            fill_raw(bench, place, count)
            told = self._run(bench.store.raw.PROGRAM, place.raw, place)
            check_raw_done(bench, place, count=count, handled=sum(one["handled"] for one in told))
            return count / bench.store.raw.span(place.raw)

    def _run(self, module: str, target: str, place: Place) -> list[Any]:
        with self._bench.store.metered(place) as spent:
            told = processes.run(self._workers, module, target, "drain")
        for name, amount in {**spent(), "client_cpu": sum(one["cpu"] for one in told)}.items():
            self._costs.setdefault(name, []).append(amount)
        return told

    def cost(self, name: str) -> float | None:
        """Return the median of a cost; None where it could not be measured."""
        return median(self._costs[name]) if name in self._costs else None


def _drained(bench: Bench, name: str, workers: int) -> list[Record]:
    ours, raw = _Side(bench, workers), _Side(bench, workers)
    records = [bench.compare(name, ours.ours, raw.raw, unit="jobs/s")]
    count = bench.sizes.jobs
    for what, (unit, scale) in COSTS.items():
        value, base = ours.cost(what), raw.cost(what)
        if value is not None and base is not None:
            records.append(bench.record(f"{name}.{what}", value * scale / count, unit=unit, raw=base * scale / count))
    dead, raw_dead = ours.cost("dead_rows"), raw.cost("dead_rows")
    if dead is not None:
        records.append(bench.record(f"{name}.dead_rows", dead, unit="rows", raw=raw_dead))
    return records


def rate(bench: Bench) -> float:
    """Return our own rate by one worker process."""
    return _Side(bench, 1).ours()


def one(bench: Bench) -> list[Record]:
    """One worker process."""
    return _drained(bench, "drain.one", 1)


def two(bench: Bench) -> list[Record]:
    """Two worker processes, set off together."""
    return _drained(bench, "drain.two", 2)[:1]
