"""Effects: jobs whose handlers write a row, committed together with the completion; singly, and in batches of 100.

Counted in the table of effects, and timed by the ledger, as the drain is. On PostgreSQL only: on SQLite one transaction
excludes all others, so that a hand-written loop has nothing to overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

from benchmarks import effects_program, processes
from benchmarks.bench import Bench, check
from benchmarks.raw import effects_postgres, postgres
from benchmarks.record import Record
from benchmarks.scenarios.drain import fill_raw
from benchmarks.stores import Place

_BATCH = 100
_TABLE = "create table effect (n bigint not null)"


def _ours(bench: Bench, count: int, connections: int, batch: int) -> float:
    with bench.store.fresh() as place:
        asyncio.run(_fill(place, count, batch))
        (result,) = processes.run(1, "benchmarks.effects_program", place.url, str(connections), str(batch))
        _check(place, count, result["handled"])
        return count / bench.store.span(place)


async def _fill(place: Place, count: int, batch: int) -> None:
    app, task = effects_program.make_app(place.url, batch=batch or None)
    async with app:
        await task.enqueue_many([[number] for number in range(count)])
    _create(place)


def _raw(bench: Bench, count: int, connections: int, batch: int) -> float:
    with bench.store.fresh() as place:
        fill_raw(bench, place, count)
        _create(place)
        (result,) = processes.run(1, effects_postgres.PROGRAM, place.raw, str(connections), str(batch))
        _check(place, count, result["handled"])
        return count / bench.store.raw.span(place.raw)


def _create(place: Place) -> None:
    with closing(postgres.connect(place.raw)) as connection:
        connection.execute(_TABLE)


def _check(place: Place, count: int, handled: int) -> None:
    check(handled, count, "handlers that were called")
    with closing(postgres.connect(place.raw)) as connection:
        (found,) = connection.execute("select count(distinct n) from effect").fetchone() or (0,)
        (rows,) = connection.execute("select count(*) from effect").fetchone() or (0,)
    check((found, rows), (count, count), "effects, and how many rows there are")


def _effects(name: str, connections: int, batch: int = 0) -> Callable[[Bench], list[Record]]:
    def run(bench: Bench) -> list[Record]:
        if bench.store.name != "postgresql":
            return []
        count = bench.sizes.jobs if batch else max(100, bench.sizes.jobs // 10)
        return [
            bench.compare(
                name,
                lambda: _ours(bench, count, connections, batch),
                lambda: _raw(bench, count, connections, batch),
                unit="effects/s",
            )
        ]

    return run


batch100 = _effects("effects.batch100", 10, _BATCH)
single10 = _effects("effects.single10", 10)
single32 = _effects("effects.single32", 32)
