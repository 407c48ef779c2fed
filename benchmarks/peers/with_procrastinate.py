"""procrastinate on PostgreSQL: its async worker with 30 jobs at once and a pool; many jobs by `batch_defer`."""

from __future__ import annotations

import asyncio
import time

from driver_report import Handled, arguments, report_result
from procrastinate import App, PsycopgConnector

_CONCURRENCY = 30
_LEFT = "select count(*) as number from procrastinate_jobs where status in ('todo', 'doing')"
_DONE = "select count(*) as number from procrastinate_jobs where status = 'succeeded'"


async def main() -> None:
    what, count, url = arguments()
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=_CONCURRENCY))
    handled = Handled(count)

    @app.task(name="nothing")
    async def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
        handled.one()

    async def number(statement: str) -> int:
        return int((await app.connector.execute_query_one_async(statement))["number"])

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        if what == "one":
            for index in range(count):
                await nothing.defer_async(n=index)
        else:
            await nothing.batch_defer_async(*({"n": index} for index in range(count)))
        if what != "drain":
            seconds = time.perf_counter() - began
            report_result(await number(_LEFT), seconds)
            return
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=_CONCURRENCY, wait=False, install_signal_handlers=False)
        )
        seconds = await handled.seconds_until(lambda: number(_LEFT), worker)
        report_result(await number(_DONE), seconds)
        await worker


asyncio.run(main())
