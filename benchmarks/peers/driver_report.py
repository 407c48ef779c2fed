"""What the drivers in Python share: their arguments, and how they report the result."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

LOOK_EVERY = 0.005


def arguments() -> tuple[str, int, str]:
    """Return what to do, how many times, and the database."""
    return sys.argv[1], int(sys.argv[2]), os.environ["HOLDFAST_BENCH_TARGET"]


def report_result(done: int, seconds: float) -> None:
    """Report how many jobs the database says were done, and in how many seconds."""
    print(json.dumps({"done": done, "seconds": seconds}), flush=True)


class Handled:
    """Counts handlers. The time runs from the first of them, so a library's start-up is not in it."""

    def __init__(self, count: int) -> None:
        self.count = 0
        self.began = 0.0
        self._wanted = count
        self._loop = asyncio.get_running_loop()
        self._all = asyncio.Event()

    def one(self) -> None:
        """Count one."""
        if not self.count:
            self.began = time.perf_counter()
        self.count += 1
        if self.count == self._wanted:
            self._loop.call_soon_threadsafe(self._all.set)

    async def seconds_until(
        self, left: Callable[[], Awaitable[int]], worker: asyncio.Task[None] | None = None
    ) -> float:
        """Wait for the last handler, and then until the database has nothing left to do. A worker must not fail.

        Looking takes time, which is not the library's: the time ends where the last look begins.
        """
        waiting = asyncio.create_task(self._all.wait())
        await asyncio.wait([waiting, *([] if worker is None else [worker])], return_when=asyncio.FIRST_COMPLETED)
        if worker is not None and worker.done():
            worker.result()
        await waiting
        looked = time.perf_counter()
        while await left():
            await asyncio.sleep(LOOK_EVERY)
            looked = time.perf_counter()
        return looked - self.began
