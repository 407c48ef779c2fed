"""Many clients in one process, each with connections of its own, that enqueue, claim and complete until all is done.

`python -m tests.system.apps.storm_program <clients> <jobs of each>`; it says how many jobs it has enqueued and done.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.system.apps import ledger_app

from holdfast import App, ClaimedJob, LeaseLost, StoreUnavailable, TaskHandle

T = TypeVar("T")
QUEUE = "default"
BATCH = 5


async def persist(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step while the store is too busy; nothing was written then."""
    while True:
        try:
            return await step()
        except StoreUnavailable:
            await asyncio.sleep(random.uniform(0.0, 0.1))  # jitter


class Client:
    def __init__(self) -> None:
        self.app = App(os.environ["HOLDFAST_URL"])
        self.app.tasks.add(ledger_app.pay.task)
        self.done = 0

    async def enqueue(self, count: int) -> None:
        pay = TaskHandle(self.app, ledger_app.pay.task, ledger_app.pay.task.handler)
        for _ in range(0, count, BATCH):
            await persist(lambda: pay.enqueue_many([{}] * BATCH))

    async def work(self) -> None:
        """Take what is there until nothing is left anywhere."""
        while True:
            held = await persist(lambda: self.app.claim(QUEUE, BATCH, lease=60.0))
            for job in held:
                await self.complete(job)
            if held:
                continue
            if await persist(self.is_all_done):
                return
            await asyncio.sleep(random.uniform(0.1, 0.3))  # others still have some

    async def complete(self, held: ClaimedJob) -> None:
        async def write() -> None:
            ctx = held.context()
            async with ctx.transaction() as connection:
                await ledger_app.insert(connection, ledger_app.row(ctx))

        try:
            await persist(write)
        except LeaseLost:
            return
        self.done += 1

    async def is_all_done(self) -> bool:
        await self.app.rescue()
        left = await self.app.backend.jobs.outstanding(["pay"], [QUEUE])
        return left.is_empty


async def main() -> None:
    count, each = int(sys.argv[1]), int(sys.argv[2])
    clients = [Client() for _ in range(count)]
    await asyncio.gather(*(persist(client.app.opened) for client in clients))
    await asyncio.gather(*(client.enqueue(each) for client in clients))
    await asyncio.gather(*(client.work() for client in clients))
    for client in clients:
        await client.app.close()
    done = sum(client.done for client in clients)
    print("enqueued", count * each, "done", done, flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    asyncio.run(main())
