"""A writer: `python -m tests.system.apps.append_program <number> <batches>`; it says how many events it has appended.

Each batch spans several partitions, in an order of its own. Some are appended in a transaction of the caller, which may
stay open for a while, and is rolled back now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from holdfast import App, StoreUnavailable

URL = os.environ["HOLDFAST_URL"]
STREAMS = 12
LONG = 0.1


class Writer:
    def __init__(self, number: int) -> None:
        self.app = App(URL)
        self.chance = random.Random(number)
        self.appended = 0

    def batch(self) -> list[dict[str, Any]]:
        size = self.chance.randint(2, 6)
        return [
            {"stream": f"stream-{self.chance.randrange(STREAMS)}", "name": "changed", "payload": {}}
            for _ in range(size)
        ]

    async def write(self) -> None:
        batch = self.batch()
        keeps = self.chance.random() < 0.7
        waits = self.chance.random() * LONG if self.chance.random() < 0.3 else 0.0
        if self.chance.random() < 0.5:
            await persist(lambda: self.app.append_many("races", batch))
            keeps = True
        elif URL.startswith("sqlite"):
            await persist(lambda: self._in_sqlite(batch, waits, keeps=keeps))
        else:
            await persist(lambda: self._in_postgres(batch, waits, keeps=keeps))
        self.appended += len(batch) * keeps

    async def _in_sqlite(self, batch: list[dict[str, Any]], waits: float, *, keeps: bool) -> None:
        path = URL.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("begin immediate")
            await self.app.append_many("races", batch, using=connection)
            time.sleep(waits)  # noqa: ASYNC251 - nothing else runs here
            connection.execute("commit" if keeps else "rollback")

    async def _in_postgres(self, batch: list[dict[str, Any]], waits: float, *, keeps: bool) -> None:
        async with await psycopg.AsyncConnection.connect(URL) as connection:
            await self.app.append_many("races", batch, using=connection)
            await asyncio.sleep(waits)
            await (connection.commit() if keeps else connection.rollback())


async def persist(step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step while the store is too busy, or has broken it off; nothing was written then."""
    while True:
        try:
            await step()
        except StoreUnavailable:
            await asyncio.sleep(random.uniform(0.0, 0.05))  # jitter
        else:
            return


async def main() -> None:
    writer = Writer(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        await writer.write()
    await writer.app.close()
    print("appended", writer.appended, flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    asyncio.run(main())
