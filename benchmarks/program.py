"""Our side of a benchmark as a process: a worker over an app with one task that does nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.raw.common import TARGET
from holdfast import App, TaskHandle

handled = 0
then: dict[int, Callable[[], None]] = {}
"""What to call when so many were handled."""


def make_app(url: str) -> tuple[App, TaskHandle[..., Any]]:
    """Return the app of the throughput benchmarks, and its task."""
    app = App(url)
    return app, app.task(nothing)


async def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
    """Do nothing, but count."""
    global handled  # noqa: PLW0603 - one number per process
    handled += 1
    if handled in then:
        then[handled]()


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def drain(url: str, count: int | None = None) -> dict[str, Any]:
    """Run what is there, or `count` jobs, with one worker, and report how many handlers were called."""
    app, _ = make_app(url)
    await app.opened()
    worker = app.worker(until_empty=count is None)
    if count is not None:
        then[count] = worker.stop
    _ready()
    began = time.process_time()
    await worker.run()
    cpu = time.process_time() - began
    await app.close()
    return {"handled": handled, "cpu": cpu, "totals": worker.status().totals.completed}


async def serve(url: str, count: int) -> dict[str, Any]:
    """Run a worker until `count` jobs have begun, and report when each did."""
    app = App(url)
    starts: list[tuple[int, int]] = []

    @app.task
    async def timed(n: int) -> None:
        starts.append((n, time.monotonic_ns()))
        if len(starts) == count:
            worker.stop()

    await app.opened()
    worker = app.worker()
    _ready()
    await worker.run()
    await app.close()
    return {"starts": starts}


async def steady(url: str, size: int) -> dict[str, Any]:
    """Run a worker until a further line comes in, saying so after each round of a certain size.

    It reports how many handlers were called, and when those of urgent jobs began, which have negative numbers.
    """
    app = App(url)
    starts: list[tuple[int, int]] = []
    count = 0

    async def nothing(n: int) -> None:
        nonlocal count
        if n < 0:
            starts.append((n, time.monotonic_ns()))
            return
        count += 1
        if count % size == 0:
            print("round", flush=True)

    app.task(nothing)
    await app.opened()
    worker = app.worker()
    _ready()
    asyncio.get_running_loop().add_reader(sys.stdin, worker.stop)
    await worker.run()
    await app.close()
    return {"handled": count + len(starts), "starts": starts}


def main(what: str, *more: str) -> None:
    """Be a process of a benchmark: print that it is ready, wait for the signal to begin, work, print the result."""
    logging.basicConfig(level=logging.ERROR)
    url = os.environ[TARGET]
    work = {
        "drain": lambda: drain(url, *map(int, more)),
        "serve": lambda: serve(url, int(more[0])),
        "steady": lambda: steady(url, int(more[0])),
    }
    result = asyncio.run(work[what]())
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
