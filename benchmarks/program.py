"""Our side of a benchmark as a process: a worker over an app with one task that does nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast import App, TaskHandle

handled = 0
starts: list[tuple[int, int]] = []


def make_app(url: str) -> tuple[App, TaskHandle[..., Any]]:
    """Return the app of the throughput benchmarks, and its task."""
    app = App(url)
    return app, app.task(nothing)


async def nothing(n: int) -> None:
    """Do nothing, but count."""
    global handled  # noqa: PLW0603 - one number per process
    handled += 1


async def timed(n: int) -> None:
    """Note when the handler began."""
    starts.append((n, time.monotonic_ns()))


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


async def serve(url: str) -> dict[str, Any]:
    """Run a worker until the input is closed, and tell when each handler began."""
    app = App(url)
    app.task(timed)
    await app.opened()
    worker = app.worker()
    _ready()
    threading.Thread(target=_stop_at_the_end_of_input, args=(worker.stop,), daemon=True).start()
    await worker.run()
    await app.close()
    return {"starts": starts}


def _stop_at_the_end_of_input(stop: Callable[[], None]) -> None:
    sys.stdin.read()
    stop()


def main(what: str, url: str) -> None:
    """Be a process of a benchmark: say that it is ready, wait for the word, work, tell what was done."""
    logging.basicConfig(level=logging.ERROR)
    told = asyncio.run(drain(url) if what == "drain" else serve(url))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
