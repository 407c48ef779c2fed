"""Our side of the effects benchmark as a process: a worker whose handlers write one row for each job."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from typing import Any

from benchmarks.raw.common import TARGET, ready_to_go
from benchmarks.raw.postgres import split
from holdfast import App, BatchContext, Call, Context, TaskHandle

handled = 0


def make_app(url: str, *, batch: int | None) -> tuple[App, TaskHandle[..., Any]]:
    """Return the app of the effects benchmark, and its task: in batches, or one job at a time."""
    app = App(url)
    table = f"{split(url)[1]}.effect"
    single = f"insert into {table} (n) values (%s)"  # noqa: S608 - a name of this benchmark
    many = f"insert into {table} (n) select unnest(%s::bigint[])"

    async def write(ctx: Context, argument: int) -> None:
        global handled  # noqa: PLW0603 - one number per process
        async with ctx.transaction() as connection:
            await connection.execute(single, (argument,))
        handled += 1

    async def write_all(ctx: BatchContext, calls: list[Call[int]]) -> None:
        global handled  # noqa: PLW0603
        async with ctx.transaction() as connection:
            await connection.execute(many, ([call.argument for call in calls],))
        handled += len(calls)

    if batch is None:
        return app, app.task(name="write")(write)
    return app, app.task(name="write", batch=batch)(write_all)


async def run(url: str, concurrency: int, batch: int | None) -> dict[str, Any]:
    """Run what is there with one worker, and report how many effects were written."""
    app, _ = make_app(url, batch=batch)
    await app.opened()
    worker = app.worker(until_empty=True, concurrency=concurrency)
    ready_to_go()
    began = time.process_time()
    await worker.run()
    cpu = time.process_time() - began
    await app.close()
    return {"handled": handled, "cpu": cpu}


def main(concurrency: str, batch: str) -> None:
    """Be a process of the benchmark."""
    logging.basicConfig(level=logging.ERROR)
    result = asyncio.run(run(os.environ[TARGET], int(concurrency), int(batch) or None))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
