"""Several workers, no job done twice: python spend.py all (or produce, consume, verify, clean)."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from holdfast import App, ClaimedJob, LeaseLost

FILE = Path(os.environ.get("SPEND_DB", "spend.db"))
JOBS = int(os.environ.get("SPEND_JOBS", "5000"))
BATCH_SIZE = 50
SUCCESS_RATE = 0.9
WORK_TIMEOUT = 2.0  # seconds: then the jobs of a dead worker are ready again

app = App(f"sqlite:///{FILE}")


@app.task(queue="spending", max_attempts=10, retry=0.1)
async def pay(number: int) -> None:
    """Carry a number; the workers below claim these jobs and never call this."""


def connect() -> sqlite3.Connection:
    return sqlite3.connect(FILE, isolation_level=None, timeout=10)


async def produce() -> None:
    async with app:  # makes Holdfast's own tables
        with closing(connect()) as connection:
            connection.execute("create table if not exists produced (number integer)")
            # No unique constraint: if a job were done twice, both rows would be here to be seen.
            connection.execute("create table if not exists spent (number integer, attempt integer, worker text)")
            connection.execute("begin immediate")
            rows = [(number,) for number in range(1, JOBS + 1)]
            connection.executemany("insert into produced values (?)", rows)
            # Our rows and the jobs commit together, because the jobs are enqueued in our transaction.
            await pay.options(using=connection).enqueue_many(rows)
            connection.execute("commit")
    print(f"produced {JOBS} jobs")


async def consume(name: str) -> None:
    done = 0
    async with app:
        while await left():
            await app.rescue()  # makes the jobs of dead workers ready again once their leases have expired
            held = await app.claim("spending", BATCH_SIZE, lease=WORK_TIMEOUT, worker_id=name)
            try:
                done += await spend(held, name) if held else 0
            except LeaseLost:
                print(f"{name} was too slow: others have its jobs now")
            if not held:
                await asyncio.sleep(0.1)
    print(f"{name}: {done} done")


async def spend(held: list[ClaimedJob], name: str) -> int:
    """Try each job; effects and completions commit together, or not at all."""
    spent: list[tuple[int, int, str]] = []
    async with app.batch(held) as batch:
        for job in batch.held:
            if random.random() < SUCCESS_RATE:
                spent.append((job.arguments()[1]["number"], job.job.attempt, name))
                batch.complete(job)
            else:
                batch.retry(job, "no luck this time")
        await batch.connection.executemany("insert into spent values (?, ?, ?)", spent)
    return len(spent)


async def left() -> bool:
    return any(queue.ready or queue.scheduled or queue.running for queue in await app.queues.list())


def verify() -> int:
    with closing(connect()) as connection:
        (produced,) = connection.execute("select count(*) from produced").fetchone()
        (spent, highest) = connection.execute("select count(distinct number), max(attempt) from spent").fetchone()
        doubled = connection.execute("select number from spent group by number having count(*) > 1").fetchall()
        lost = connection.execute("select number from produced except select number from spent").fetchall()
    print(f"produced {produced}, spent {spent}, doubled {len(doubled)}, lost {len(lost)}, highest attempt {highest}")
    return 0 if produced == spent and not doubled and not lost else 1


def clean() -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{FILE}{ending}").unlink(missing_ok=True)


def everything() -> int:
    clean()
    asyncio.run(produce())
    names = [f"worker-{number}" for number in range(1, 5)]
    workers = [subprocess.Popen([sys.executable, __file__, "consume", name]) for name in names]  # noqa: S603
    with closing(connect()) as connection:
        while connection.execute("select count(*) from spent").fetchone()[0] < JOBS // 4:
            time.sleep(0.01)
    workers[0].kill()  # at any point of its loop
    print("worker-1 was killed")
    for worker in workers:
        worker.wait()
    return verify()


if __name__ == "__main__":
    steps = {"produce": produce, "consume": consume, "verify": verify, "clean": clean, "all": everything}
    step, *names = sys.argv[1:] or ["all"]
    ended = steps[step](*names)
    sys.exit(asyncio.run(ended) if asyncio.iscoroutine(ended) else ended)
