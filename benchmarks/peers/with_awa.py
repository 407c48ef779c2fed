"""awa-pg on PostgreSQL: queue storage, 2,048 workers, claims of 1,024, COPY for many jobs.

Its own statistics take seconds to count on tables that were just filled, so its tables are counted instead.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import asyncpg
from awa import AsyncClient
from driver_report import Handled, arguments, report_result

_QUEUE = "bench"
_WORKERS = 2048
_BATCH = 1024
_WAITING = "select count(*) from awa.jobs where state = 'available'"
_DONE = "select coalesce(sum(completed_count), 0)::bigint from awa.receipt_completion_batches"


@dataclass
class Nothing:
    n: int


async def main() -> None:
    what, count, url = arguments()
    client = AsyncClient(url, max_connections=40)
    await client.migrate()
    await client.install_queue_storage()
    watcher = await asyncpg.connect(url)
    handled = Handled(count)

    @client.task(Nothing, queue=_QUEUE)
    async def nothing(job: object) -> None:  # noqa: ARG001 - a job has arguments
        handled.one()

    async def left() -> int:
        return count - await watcher.fetchval(_DONE)

    began = time.perf_counter()
    if what == "one":
        for number in range(count):
            await client.insert(Nothing(number), queue=_QUEUE)
    else:
        await client.enqueue_many_copy([Nothing(number) for number in range(count)], queue=_QUEUE)
    if what != "drain":
        seconds = time.perf_counter() - began
        await watcher.execute("analyze")
        report_result(await watcher.fetchval(_WAITING), seconds)
        return
    await client.start([{"name": _QUEUE, "max_workers": _WORKERS, "claim_batch_size": _BATCH}])
    seconds = await handled.seconds_until(left)
    report_result(await watcher.fetchval(_DONE), seconds)
    await client.shutdown()


asyncio.run(main())
