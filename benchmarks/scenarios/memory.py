"""Memory: how much a worker process grows while it drains a long queue. Once a run, since it takes long."""

from __future__ import annotations

import asyncio
import time

from benchmarks import processes
from benchmarks.bench import Bench
from benchmarks.record import Record
from benchmarks.scenarios.drain import check_done, check_raw_done, fill, fill_raw

_LOOK_EVERY = 0.05


def _growth(module: str, target: str) -> tuple[float, int]:
    """Return the peak over what it had when ready, in MB, and how many handlers were called."""
    with processes.started(1, module, target, "drain") as (worker,):
        before = peak = worker.memory() or 0.0
        worker.go()
        while not worker.has_ended:
            peak = max(peak, worker.memory() or 0.0)
            time.sleep(_LOOK_EVERY)
        return peak - before, worker.result()["handled"]


def drain(bench: Bench) -> list[Record]:
    """One worker process, and one of the yardstick."""
    count = bench.sizes.memory
    with bench.store.fresh() as place:
        asyncio.run(fill(place, count))
        ours, handled = _growth("benchmarks.program", place.url)
        check_done(bench, place, count=count, handled=handled)
    with bench.store.fresh() as place:
        fill_raw(bench, place, count)
        raw, handled = _growth(bench.store.raw.PROGRAM, place.raw)
        check_raw_done(bench, place, count=count, handled=handled)
    return [bench.record("memory.drain", ours, unit="MB", raw=raw)]
