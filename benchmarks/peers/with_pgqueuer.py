"""pgqueuer on PostgreSQL: asyncpg, uvloop, batches of 1,000; many jobs by one `enqueue` with lists."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import asyncpg
import uvloop
from driver_report import Handled, arguments, report_result
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

_BATCH = 1000
_LEFT = "select count(*) from pgqueuer"
_DONE = "select count(*) from pgqueuer_log where status = 'successful'"


async def main() -> None:
    what, count, url = arguments()
    connection, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    began = time.perf_counter()
    if what == "one":
        for number in range(count):
            await queries.enqueue("nothing", str(number).encode())
    else:
        payloads = [str(number).encode() for number in range(count)]
        await queries.enqueue(["nothing"] * count, payloads, [0] * count)
    if what != "drain":
        seconds = time.perf_counter() - began
        report_result(await watcher.fetchval(_LEFT), seconds)
        return
    handled = Handled(count)
    manager = QueueManager(queries)

    @manager.entrypoint("nothing")
    async def nothing(job: object) -> None:  # noqa: ARG001 - a job has arguments
        handled.one()

    worker = asyncio.create_task(
        manager.run(batch_size=_BATCH, dequeue_timeout=timedelta(seconds=1), log_aggregation_interval=timedelta(0))
    )
    seconds = await handled.seconds_until(lambda: watcher.fetchval(_LEFT), worker)
    report_result(await watcher.fetchval(_DONE), seconds)
    manager.shutdown.set()
    await worker


uvloop.run(main())
