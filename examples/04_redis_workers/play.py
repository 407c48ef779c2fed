"""Workers over Redis, scene by scene: python play.py [URL]; without a URL on a throw-away server."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import tasks
from tasks import AT_ONCE, FIRST_PAUSE, Nap, app, book, fetch, hang, nap, step, take_turn

from holdfast import JobFailed, JobHandle, chain
from holdfast.testing.redis_server import redis_server

NAPS = int(os.environ.get("NAPS", "600"))
WORKERS = [f"worker-{number}" for number in range(1, int(os.environ.get("WORKERS", "3")) + 1)]
PROGRAM = [sys.executable, "-u", str(Path(__file__).with_name("tasks.py"))]


def check(is_so: bool, what: str) -> None:
    if not is_so:
        sys.exit(f"WRONG: {what}")


async def many_naps() -> None:
    """Sleep tasks over several worker processes."""
    naps = [{"milliseconds": random.randint(10, 60)} for _ in range(NAPS)]
    jobs = await nap.enqueue_many(naps)
    began_at = time.monotonic()
    workers = [subprocess.Popen([*PROGRAM, name]) for name in WORKERS]  # noqa: ASYNC220, S603 - our own program
    done: list[Nap] = await asyncio.gather(*(job.result(timeout=300) for job in jobs))
    seconds = time.monotonic() - began_at
    check([worker.wait() for worker in workers] == [0] * len(WORKERS), "a worker has failed")
    check([each.milliseconds for each in done] == [each["milliseconds"] for each in naps], "a result is another job's")
    by_worker: defaultdict[str, list[Nap]] = defaultdict(list)
    for each in done:
        by_worker[each.worker].append(each)
    print(f"{'worker':<10}{'jobs':>6}{'slept':>10}{'most at once':>14}")
    for name in WORKERS:
        its = by_worker[name]
        slept = sum(each.milliseconds for each in its) / 1000
        print(f"{name:<10}{len(its):>6}{slept:>8.1f} s{max((each.at_once for each in its), default=0):>14}")
    total = sum(each.milliseconds for each in done) / 1000
    print(f"{'total':<10}{len(done):>6}{total:>8.1f} s   in {seconds:.1f} s, start of the workers included")
    most = max(each.at_once for each in done)
    check(1 < most <= AT_ONCE, f"a worker ran {most} jobs at once, and should run several, {AT_ONCE} at most")


async def longest_wait_first() -> None:
    """The job that has waited longest runs first; a step of priority is worth a minute of waiting."""
    tasks.began.clear()
    jobs = [
        await take_turn.enqueue("new"),
        await take_turn.options(priority=1).enqueue("new, priority 1"),
        await take_turn.options(run_at=datetime.now(UTC) - timedelta(seconds=90)).enqueue("due for 90 s"),
    ]
    async with app.working(queues=["turns"], concurrency=1):
        await ends(jobs)
    print("ran in this order:", "; ".join(tasks.began))
    check(tasks.began == ["due for 90 s", "new, priority 1", "new"], "the order is wrong")


async def failed_jobs() -> None:
    """Retries with exponential backoff, a time limit, and the list of failed jobs, inspected and run again."""
    jobs = [await fetch.enqueue(7), await hang.enqueue()]
    async with app.working(queues=["pages"], concurrency=4):
        check(await ends(jobs) == ["failed", "failed"], "what cannot succeed has succeeded")
        for view in (await app.jobs.list("failed", queue="pages")).jobs:
            attempts = (await app.jobs.show(view.id)).attempts
            starts = [each.started_at for each in attempts]
            lengths = [(late - early).total_seconds() for early, late in pairwise(starts)]
            pauses = [f"{length:.1f} s" for length in lengths]
            last = attempts[-1]
            print(f"failed: {view.task}, attempt {view.attempt} of {view.max_attempts}", end="")
            print(f", {last.error_class}: {last.message}" + (f"; pauses {', '.join(pauses)}" if pauses else ""))
            grown = all(length >= FIRST_PAUSE * 2**number for number, length in enumerate(lengths))
            check(grown and len(pauses) == view.max_attempts - 1, "the pauses do not double")
        try:
            await jobs[0].result()
        except JobFailed as error:
            print(f"a program that waits for the result gets: {type(error).__name__}")
        tasks.is_broken = False
        check(await app.jobs.retry(jobs[0].id), "a failed job cannot be run again")
        print("run again after a repair:", await jobs[0].result(timeout=10))


async def sequence() -> None:
    """A, then B, then C; B fails, so C never runs."""
    tasks.began.clear()
    jobs = await chain(step.call("A"), step.call("B", fails=True), step.call("C")).enqueue()
    async with app.working(queues=["steps"], concurrency=4):
        states = await ends(jobs)
    for name, job, state in zip("ABC", jobs, states, strict=True):
        reason = (await job.details()).job.reason
        print(f"{name} {state}" + (f": {reason}" if reason else ""))
    check(tasks.began == ["A", "B"], "C has run")
    check(states == ["completed", "failed", "cancelled"], "the states are wrong")


async def one_at_a_time_by_key() -> None:
    """The jobs of one account run one after another, in order; those of other accounts at the same time."""
    tasks.trace.clear()
    accounts = ("ada", "grace", "mary")
    jobs = [
        await book.options(order_key=account).enqueue(account, number) for number in range(1, 6) for account in accounts
    ]
    async with app.working(queues=["accounts"], concurrency=AT_ONCE):
        await ends(jobs)
    for account in accounts:
        its = [(number, what) for each, number, what in tasks.trace if each == account]
        print(f"{account:<6}", *(number for number, what in its if what == "began"))
        expected = [(number, what) for number in range(1, 6) for what in ("began", "ended")]
        check(its == expected, f"the jobs of {account} ran at the same time, or in another order")


async def ends(jobs: list[JobHandle]) -> list[str]:
    return [str(state) for state in await asyncio.gather(*(job.wait(timeout=60) for job in jobs))]


SCENES: tuple[Callable[[], Awaitable[None]], ...] = (
    many_naps,
    longest_wait_first,
    failed_jobs,
    sequence,
    one_at_a_time_by_key,
)


async def play(url: str) -> None:
    os.environ["HOLDFAST_URL"] = url  # for the worker processes
    app.use(url)
    async with app:
        for scene in SCENES:
            print(f"\n{scene.__doc__}")
            await scene()
    print("\nEverything came out as it should.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(play(sys.argv[1]))
    else:
        with redis_server(sync="everysec") as server:
            print(f"{server.program.name} at {server.url}")
            asyncio.run(play(server.url))
