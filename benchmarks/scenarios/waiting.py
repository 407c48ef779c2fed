"""Bytes: what a waiting and a completed job take in a store that keeps its data in memory; none on others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from benchmarks import processes
from benchmarks.bench import Bench
from benchmarks.record import Record
from benchmarks.scenarios.drain import check_done, check_raw_done, fill, fill_raw

if TYPE_CHECKING:
    from benchmarks.redis_store import RedisStore


def waiting(bench: Bench) -> list[Record]:
    """Fill the store with jobs of a few bytes of payload, and the yardstick's with as many."""
    store, count = bench.store, bench.sizes.jobs
    if store.name != "redis":
        return []
    memory = cast("RedisStore", store).memory
    with store.fresh() as place:
        asyncio.run(fill(place, 1))  # what a store takes without jobs is not in it
        before = memory()
        asyncio.run(fill(place, count))
        ours = (memory() - before) / count
        told = processes.run(1, "benchmarks.program", place.url, "drain")
        done = (memory() - before) / count
        check_done(bench, place, count=count + 1, handled=sum(one["handled"] for one in told))
    with store.fresh() as place:
        before = memory()
        fill_raw(bench, place, count)
        raw = (memory() - before) / count
        told = processes.run(1, store.raw.PROGRAM, place.raw, "drain")
        raw_done = (memory() - before) / count
        check_raw_done(bench, place, count=count, handled=sum(one["handled"] for one in told))
    return [
        bench.record("memory.waiting", ours, unit="bytes/job", raw=raw),
        bench.record("memory.completed", done, unit="bytes/job", raw=raw_done),
    ]
