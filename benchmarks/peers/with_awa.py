"""awa-pg on PostgreSQL: 2,048 workers, claims of 1,024, COPY for many jobs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import uvloop
from awa import AsyncClient
from telling import Handled, asked, tell

_QUEUE = "bench"
_WORKERS = 2048
_BATCH = 1024


@dataclass
class Nothing:
    n: int


async def main() -> None:
    what, count, url = asked()
    client = AsyncClient(url, max_connections=10)
    await client.migrate()
    await client.install_queue_storage()
    handled = Handled(count)

    @client.task(Nothing, queue=_QUEUE)
    async def nothing(job: object) -> None:  # noqa: ARG001 - a job has arguments
        handled.one()

    async def counts() -> tuple[int, int]:
        for stat in await client.queue_stats():
            if stat.queue == _QUEUE:
                return stat.available + stat.running + stat.scheduled + stat.retryable, stat.completed_last_hour
        return 0, 0

    async def left() -> int:
        waiting, done = await counts()
        return waiting or count - done

    began = time.perf_counter()
    if what == "one":
        for number in range(count):
            await client.insert(Nothing(number), queue=_QUEUE)
    else:
        await client.enqueue_many_copy([Nothing(number) for number in range(count)], queue=_QUEUE)
    if what != "drain":
        seconds = time.perf_counter() - began
        tell((await counts())[0], seconds)
        return
    await client.start([{"name": _QUEUE, "max_workers": _WORKERS, "claim_batch_size": _BATCH}])
    seconds = await handled.seconds_until(left)
    tell((await counts())[1], seconds)
    await client.shutdown()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(main())
