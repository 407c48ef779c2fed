"""Run workers inside a test, and look into the file behind their back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from holdfast import App, JobHandle, JobState, Worker

LIMIT = 15.0
QUICK: dict[str, Any] = {"poll_interval": 0.02, "promote_every": 0.05, "drain_timeout": 5.0}


@asynccontextmanager
async def working(app: App, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker for the length of the block, then let it drain; what breaks it is raised."""
    worker = app.worker(**(QUICK | settings))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, LIMIT)


async def run_all(app: App, **settings: Any) -> Worker:
    """Run a worker until nothing is left, retries included."""
    worker = app.worker(**(QUICK | {"until_empty": True} | settings))
    await asyncio.wait_for(worker.run(), LIMIT)
    return worker


async def ended(job: JobHandle) -> JobState:
    """Wait for a job's end."""
    return await job.wait(LIMIT)


async def total(app: App) -> int:
    """Return how many jobs the store holds in states that an enqueue leads to."""
    return sum([len((await app.jobs.list(state)).jobs) for state in ("ready", "scheduled", "running", "completed")])


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as a stranger would; each statement commits by itself."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=LIMIT)
    try:
        yield connection
    finally:
        connection.close()


def change(path: Path, sql: str, *parameters: object) -> int:
    """Change the file behind the store's back; how many rows were."""
    with connected(path) as connection:
        return connection.execute(sql, parameters).rowcount


def ask(path: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Read the file behind the store's back."""
    with connected(path) as connection:
        return connection.execute(sql, parameters).fetchall()
