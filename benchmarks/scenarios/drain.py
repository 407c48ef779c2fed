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
from holdfast import Limit

_CHUNK = 100_000
_KEYS = 1000  # order keys
_WAITING = 1000  # jobs over the limit of their queue
_LIMITED = "limited"
_LEASE = 3600.0  # seconds: longer than a run

COSTS = {
    "client_cpu": ("µs/job", 1e6),
    "server_cpu": ("µs/job", 1e6),
    "wal": ("bytes/job", 1),
    "commits": ("commits/job", 1),
    "lock_waits": ("waits/job", 1),
    "deadlocks": ("deadlocks/job", 1),
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
            results = self._run("benchmarks.program", place.url, place)
            check_done(bench, place, count=count, handled=sum(one["handled"] for one in results))
            return count / bench.store.span(place)

    def raw(self) -> float:
        bench, count = self._bench, self._bench.sizes.jobs
        with bench.store.fresh() as place:
            fill_raw(bench, place, count)
            results = self._run(bench.store.raw.PROGRAM, place.raw, place)
            check_raw_done(bench, place, count=count, handled=sum(one["handled"] for one in results))
            return count / bench.store.raw.span(place.raw)

    def _run(self, module: str, target: str, place: Place) -> list[Any]:
        with self._bench.store.metered(place) as spent:
            results = processes.run(self._workers, module, target, "drain")
        for name, amount in {**spent(), "client_cpu": sum(one["cpu"] for one in results)}.items():
            self._costs.setdefault(name, []).append(amount)
        return results

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


async def _fill_keys(place: Place, count: int) -> None:
    """Enqueue jobs with order keys, those of each key together."""
    app, task = program.make_app(place.url)
    keys = min(_KEYS, count)
    async with app:
        for key in range(keys):
            await task.options(order_key=f"key-{key}").enqueue_many([{"n": n} for n in range(key, count, keys)])


def _ordered_rate(bench: Bench) -> float:
    count = bench.sizes.jobs
    with bench.store.fresh() as place:
        asyncio.run(_fill_keys(place, count))
        results = processes.run(1, "benchmarks.program", place.url, "drain")
        check_done(bench, place, count=count, handled=sum(one["handled"] for one in results))
        return count / bench.store.span(place)


def order_keys(bench: Bench) -> list[Record]:
    """One worker process, the jobs of 1,000 order keys. `raw` is our own rate without keys."""
    return [bench.compare("drain.order_keys", lambda: _ordered_rate(bench), lambda: rate(bench), unit="jobs/s")]


async def _fill_limited(place: Place) -> None:
    """Let one job run in a queue with a limit of one, and others wait for it."""
    app, task = program.make_app(place.url)
    async with app:
        await app.queues.limit(_LIMITED, Limit(1))
        await task.options(queue=_LIMITED).enqueue_many([{"n": -1}] * (1 + _WAITING))
        check(len(await app.claim(_LIMITED, 2, lease=_LEASE)), 1, "jobs that the limit lets run")


def _beside_rate(bench: Bench) -> float:
    count = bench.sizes.jobs
    with bench.store.fresh() as place:
        asyncio.run(_fill_limited(place))
        asyncio.run(fill(place, count))
        since = bench.store.now()
        results = processes.run(1, "benchmarks.program", place.url, "drain", str(count))
        check(sum(one["handled"] for one in results), count, "handlers that were called")
        wanted = Held(count + 1 + _WAITING, _WAITING, 1, count, given_up=0, highest_attempt=1)
        check(bench.store.held(place), wanted, "what the store holds after the drain")
        return count / bench.store.span(place, since)


def beside_limit(bench: Bench) -> list[Record]:
    """One worker process that also serves a queue whose limit is reached. `raw` is our own rate without that queue."""
    return [bench.compare("drain.beside_limit", lambda: _beside_rate(bench), lambda: rate(bench), unit="jobs/s")]


def rate(bench: Bench, workers: int = 1) -> float:
    """Return our own rate by so many worker processes."""
    return _Side(bench, workers).ours()


def one(bench: Bench) -> list[Record]:
    """One worker process."""
    return _drained(bench, "drain.one", 1)


def two(bench: Bench) -> list[Record]:
    """Two worker processes, set off together; and their rate compared with that of one."""
    both = _drained(bench, "drain.two", 2)[:1]
    return [*both, bench.compare("drain.two.to_one", lambda: rate(bench, 2), lambda: rate(bench), unit="jobs/s")]


def four(bench: Bench) -> list[Record]:
    """Four worker processes, how often one has waited for a lock, and how many deadlocks they met; on MySQL alone."""
    if bench.store.name != "mysql":
        return []
    return [
        record
        for record in _drained(bench, "drain.four", 4)
        if record.name.endswith(("four", "lock_waits", "deadlocks"))
    ]
