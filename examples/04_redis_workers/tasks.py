"""The tasks, and a worker: python tasks.py NAME (the store is that of $HOLDFAST_URL)."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass

from holdfast import App, Exponential
from holdfast.hooks import WorkerEnd

AT_ONCE = 8  # jobs at once in a worker
FIRST_PAUSE = 0.1  # seconds before the second attempt; before each later one twice as much

app = App()
napping: list[int] = []  # the naps of this moment
began: list[str] = []  # what ran in this process, in the order of the starts
trace: list[tuple[str, int, str]] = []  # the starts and ends of bookings
is_broken = True


@dataclass
class Nap:
    worker: str
    milliseconds: int
    at_once: int


@app.task(queue="naps", timeout=5)
async def nap(milliseconds: int) -> Nap:
    """Sleep; the result says which worker did it, and how many jobs it ran at that moment."""
    napping.append(milliseconds)
    at_once = len(napping)
    try:
        await asyncio.sleep(milliseconds / 1000)
    finally:
        napping.remove(milliseconds)
    return Nap(os.environ.get("WORKER", ""), milliseconds, at_once)


@app.task(queue="turns")
async def take_turn(name: str) -> None:
    began.append(name)


@app.task(queue="pages", max_attempts=4, retry=Exponential(base=FIRST_PAUSE, factor=2, jitter="none"))
async def fetch(page: int) -> str:
    """Fail until the other side is repaired."""
    if is_broken:
        raise ConnectionError("the other side does not answer")
    return f"page {page}"


@app.task(queue="pages", timeout=0.2, max_attempts=1)
async def hang() -> None:
    await asyncio.sleep(60)


@app.task(queue="steps", max_attempts=1)
async def step(name: str, fails: bool = False) -> str:
    began.append(name)
    if fails:
        raise ValueError(f"{name} is not possible")
    return name.lower()


@app.task(queue="accounts")
async def book(account: str, number: int) -> None:
    trace.append((account, number, "began"))
    await asyncio.sleep(0.02)
    trace.append((account, number, "ended"))


@app.on("worker.end")
def report(end: WorkerEnd) -> None:
    if end.totals is not None and "WORKER" in os.environ:
        print(f"{os.environ['WORKER']} ends: {end.totals.completed} jobs completed", flush=True)


if __name__ == "__main__":
    os.environ["WORKER"] = sys.argv[1]
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    sys.exit(app.run_worker(worker_id=sys.argv[1], queues=["naps"], concurrency=AT_ONCE, until_empty=True))
