"""Our side of a benchmark as a process: a worker over an app with one task that does nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from holdfast import App, TaskHandle

handled = 0


def make_app(url: str) -> tuple[App, TaskHandle[..., Any]]:
    """Return the app of the throughput benchmarks, and its task."""
    app = App(url)
    return app, app.task(nothing)


async def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
    """Do nothing, but count."""
    global handled  # noqa: PLW0603 - one number per process
    handled += 1


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def drain(url: str) -> dict[str, Any]:
    """Run what is there with one worker, and tell how many handlers were called."""
    app, _ = make_app(url)
    await app.opened()
    worker = app.worker(until_empty=True)
    _ready()
    await worker.run()
    await app.close()
    return {"handled": handled, "totals": worker.status().totals.completed}


async def serve(url: str, count: int) -> dict[str, Any]:
    """Run a worker until `count` jobs have begun, and tell when each did."""
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


def main(what: str, url: str, *more: str) -> None:
    """Be a process of a benchmark: say that it is ready, wait for the word, work, tell what was done."""
    logging.basicConfig(level=logging.ERROR)
    told = asyncio.run(drain(url) if what == "drain" else serve(url, int(more[0])))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
