"""taskiq on Redis, by a stream: a receiver with 100 tasks at once; many jobs one by one: it has no call for many."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import redis.asyncio as redis
from driver_report import Handled, arguments, report_result
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

_AT_ONCE = 100


async def main() -> None:
    what, count, url = arguments()
    broker = RedisStreamBroker(url=url, queue_name="bench")
    client = redis.Redis.from_url(url)
    handled = Handled(count)

    @broker.task
    async def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
        handled.one()

    broker.is_worker_process = what == "drain"
    await broker.startup()
    began = time.perf_counter()
    for number in range(count):
        await nothing.kiq(number)
    seconds = time.perf_counter() - began
    if what != "drain":
        report_result(await client.xlen("bench"), seconds)
        await broker.shutdown()
        return
    with ThreadPoolExecutor(2) as threads:
        finish = asyncio.Event()
        receiver = Receiver(broker, threads, max_async_tasks=_AT_ONCE, max_prefetch=_AT_ONCE, run_startup=False)
        worker = asyncio.create_task(receiver.listen(finish))

        async def left() -> int:
            return int((await client.xpending("bench", "taskiq"))["pending"])

        seconds = await handled.seconds_until(left, worker)
        report_result(handled.count, seconds)
        finish.set()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    await client.aclose()


asyncio.run(main())
