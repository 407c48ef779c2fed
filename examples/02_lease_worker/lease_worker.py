"""Workers that hold leases, in three terminals: python lease_worker.py worker|create|watch|reset."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

from holdfast import App, Context, Worker
from holdfast.model.job import LeasedJob

FILE = os.environ.get("LEASE_DB", "lease.db")
STEPS = 8
STEP = float(os.environ.get("LEASE_STEP", "0.5"))  # seconds

app = App(f"sqlite:///{FILE}")


@app.task(queue="reports", max_attempts=2, retry=0.5)
async def report(ctx: Context, customer: str) -> str:
    """Take some seconds, and report the progress."""
    for step in range(1, STEPS + 1):
        await asyncio.sleep(STEP)
        await ctx.progress(100 * step / STEPS, f"page {step} of {STEPS}")
    if customer == "unknown":
        raise LookupError("there is no customer of this name")
    return f"report for {customer}"


class LoudWorker(Worker):
    """A subclass of the worker that prints what it does, and its state, around every job."""

    async def process(self, job: LeasedJob, ctx: Context) -> Any:
        status = self.status()
        print(f"{self.worker_id} begins {job.id} (attempt {job.attempt}, fence {ctx.fence}); {len(status.running)} run")
        result = await super().process(job, ctx)
        print(f"{self.worker_id} ends {job.id}")
        return result


def worker(name: str = "anna") -> int:
    """Terminal 1: run until Ctrl-C. The lease lasts 3 s and is extended at half of it, as long as the process lives."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    return app.run_worker(
        worker_class=LoudWorker, worker_id=name, lease=3, extend_at=0.5, poll_interval=0.2, concurrency=4
    )


async def create() -> None:
    """Terminal 2: make jobs."""
    async with app:
        for job in await report.enqueue_many([{"customer": "ada"}, {"customer": "grace"}, {"customer": "unknown"}]):
            print(f"created {job.id}")


async def watch() -> None:
    """Terminal 3: look, until every job has ended."""
    async with app:
        while await left():
            for lease in await app.leases():
                print(
                    f"{lease.job_id} {lease.worker_id:<14} attempt {lease.attempt}, fence {lease.fence}, "
                    f"{lease.expires_in.total_seconds():4.1f} s left, {lease.percent or 0:3.0f} % {lease.note or ''}"
                )
            print("--")
            await asyncio.sleep(1)
        for job in (await app.jobs.list("completed")).jobs:
            print(f"{job.id} completed at attempt {job.attempt}: {await app.job(job.id).result()}")
        for job in (await app.jobs.list("failed")).jobs:
            last = (await app.jobs.show(job.id)).attempts[-1]
            print(f"{job.id} failed at attempt {job.attempt}: {last.error_class}: {last.message}")


async def left() -> bool:
    return any(queue.ready or queue.scheduled or queue.running for queue in await app.queues.list())


async def reset(job_id: str) -> None:
    """Take a job from the worker that holds it; it runs again at once, and the former holder can write nothing more."""
    async with app:
        print("reset" if await app.jobs.reset(job_id) else "it does not run")


if __name__ == "__main__":
    steps = {"worker": worker, "create": create, "watch": watch, "reset": reset}
    step, *names = sys.argv[1:] or ["watch"]
    ended = steps[step](*names)
    sys.exit(asyncio.run(ended) if asyncio.iscoroutine(ended) else ended)
