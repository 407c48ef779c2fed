"""Drain while a snapshot is held open elsewhere, so that the server can remove no row that died since.

One worker serves all the while. Round after round its queue is paused, filled and resumed; the rate of a round is
taken by the ledger. `raw` here is our own rate in the same round of a run without the snapshot. Afterwards, in a
further round, urgent jobs are enqueued into the load, and their waits taken. Once a run, since it takes long.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

from benchmarks import processes, program
from benchmarks.bench import Bench, check
from benchmarks.record import Record
from benchmarks.stores import Held, Place
from holdfast import App, TaskHandle

_QUEUE = "default"
_URGENT = 1000  # priority: a head start of hours
_URGENT_JOBS = 20
_URGENT_EVERY = 0.05
_LOOK_EVERY = 0.05
_PATIENCE = 60.0


class _Measured(NamedTuple):
    """The rate of the last round, and the longest wait of an urgent job in ms."""

    rate: float
    urgent: float


class _Rounds:
    """A store, a worker on it, and rounds of jobs."""

    def __init__(self, bench: Bench, place: Place, worker: processes.Process, task: TaskHandle[..., Any]) -> None:
        self._bench = bench
        self._place = place
        self._worker = worker
        self._app = task.app
        self._task = task
        self.pushed = 0

    async def push(self) -> float:
        """Let a round through; return its rate."""
        count = self._bench.sizes.jobs
        await self._prepare()
        since = self._bench.store.now()
        await self._app.queues.resume(_QUEUE)
        await self._settled()
        return count / self._bench.store.span(self._place, since)

    async def push_with_urgent(self) -> dict[int, int]:
        """Let a round through and urgent jobs into it; return when the enqueue of each came back, by number."""
        await self._prepare()
        await self._app.queues.resume(_QUEUE)
        urgent = self._task.options(priority=_URGENT)
        returns: dict[int, int] = {}
        for number in range(1, _URGENT_JOBS + 1):
            await asyncio.sleep(_URGENT_EVERY)
            await urgent.enqueue(n=-number)
            returns[-number] = time.monotonic_ns()
        self.pushed += _URGENT_JOBS
        await self._settled()
        return returns

    async def _prepare(self) -> None:
        count = self._bench.sizes.jobs
        await self._app.queues.pause(_QUEUE)
        await self._task.enqueue_many([{"n": number} for number in range(count)])
        self.pushed += count

    async def _settled(self) -> None:
        """Wait until the worker has handled the round, and then for what it has not finished yet."""
        check(await asyncio.to_thread(self._worker.line), "round", "what the worker prints after a round")
        give_up = time.monotonic() + _PATIENCE
        while (done := self._bench.store.completed(self._place)) < self.pushed:
            check(time.monotonic() < give_up, True, f"patience for {self.pushed} jobs, of which {done} are completed")
            await asyncio.sleep(_LOOK_EVERY)


async def _whole(bench: Bench, place: Place, worker: processes.Process, *, after: int, holds: bool) -> _Measured:
    rate = 0.0
    app, task = program.make_app(place.url)
    async with app:
        rounds = _Rounds(bench, place, worker, task)
        with bench.store.snapshot(place) if holds else nullcontext():
            worker.go()
            while rounds.pushed <= after:
                rate = await rounds.push()
            returns = await rounds.push_with_urgent()
        worker.stop()
    result = await asyncio.to_thread(worker.result)
    check(result["handled"], rounds.pushed, "handlers that were called")
    pushed = rounds.pushed
    wanted = Held(ids=pushed, ready=0, underway=0, completed=pushed, given_up=0, highest_attempt=1)
    check(bench.store.held(place), wanted, "what the store holds after the rounds")
    waits = [(began - returns[number]) / 1e6 for number, began in result["starts"]]
    check(len(waits), _URGENT_JOBS, "urgent jobs that began")
    return _Measured(rate, max(waits))


def _side(bench: Bench, *, after: int, holds: bool) -> _Measured:
    with bench.store.fresh() as place:

        async def install() -> None:
            async with App(place.url):
                pass

        asyncio.run(install())
        with processes.started(1, "benchmarks.program", place.url, "steady", str(bench.sizes.jobs)) as (worker,):
            return asyncio.run(_whole(bench, place, worker, after=after, holds=holds))


def _after(bench: Bench, count: int) -> list[Record]:
    """The rate after `count` jobs with a snapshot held, by that without; and the longest wait of an urgent job."""
    free = _side(bench, after=count, holds=False)
    under = _side(bench, after=count, holds=True)
    name = f"drain.held.{count}"
    return [
        bench.record(name, under.rate, unit="jobs/s", raw=free.rate),
        bench.record(f"{name}.urgent", under.urgent, unit="ms", raw=free.urgent),
    ]


def held(bench: Bench) -> list[Record]:
    """After twice the usual number of jobs."""
    return _after(bench, bench.sizes.held)


def long(bench: Bench) -> list[Record]:
    """After twenty times as many: it takes some minutes."""
    return _after(bench, bench.sizes.held_long)
