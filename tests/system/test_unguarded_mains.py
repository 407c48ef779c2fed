"""Main files without `if __name__ == "__main__":` whose tasks run in children: no child starts the program again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast import App, JobState

LIMIT = 60.0
REMEDY = 'put the program under `if __name__ == "__main__":`, or move the tasks to a separate module'

HEAD = """
import asyncio, logging, sys, threading, time
from holdfast import App

logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(process)d %(message)s")
app = App("sqlite:///jobs.db")

@app.task(executor="process", max_attempts=2, retry=0.1)
def hard(n: int) -> int:
    return n

@app.task
async def easy(n: int) -> None: ...
"""

ASYNC = """
async def main():
    while True:
        try:
            await hard.enqueue(n=1)
            await easy.enqueue(n=2)
            break
        except Exception:  # as a patient producer does
            await asyncio.sleep(0.01)
    async with app.working(poll_interval=0.05) as _:
        while (await app.queues.list())[0].failed == 0:
            await asyncio.sleep(0.05)
    await app.close()

asyncio.run(main())
"""

SYNC = """
hard.sync.enqueue(n=1)
easy.sync.enqueue(n=2)
app.sync.close()
sys.exit(app.run_worker(until_empty=True))
"""

THREAD = """
def produce():
    time.sleep(0.3)  # so that a copy of it would go on after the import
    hard.sync.enqueue(n=1)
    while True:
        easy.sync.enqueue(n=2)
        time.sleep(0.05)

producer = threading.Thread(target=produce, daemon=True)
producer.start()

def finished():
    while not app.jobs.sync.list("failed").jobs:
        time.sleep(0.05)

if hasattr(sys.modules["__main__"], "producer"):  # a child has another main
    app.sync.opened()  # makes the tables, which `list` would miss
    worker = app.worker(poll_interval=0.05)
    running = threading.Thread(target=lambda: asyncio.run(worker.run()))
    running.start()
    finished()
    worker.stop()
    running.join()
"""


def run(tmp_path: Path, body: str) -> str:
    (tmp_path / "shop.py").write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def jobs(tmp_path: Path) -> tuple[int, str]:
    """Return how many jobs of `hard` there ever were, and the reason of the one that failed."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    with app.sync:
        found = [job for state in JobState for job in app.jobs.sync.list(state, task="hard").jobs]
        (failed,) = app.jobs.sync.list("failed").jobs
        return len(found), failed.reason or ""


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (ASYNC, "uses the store when a child process imports it"),
        (SYNC, "uses the store when a child process imports it"),
        (THREAD, "starts the thread 'Thread-1 (produce)' when a child process imports it"),
    ],
    ids=["asyncio", "sync", "thread"],
)
def test_a_child_does_not_start_the_program_again(tmp_path: Path, body: str, problem: str):
    said = run(tmp_path, body)

    count, reason = jobs(tmp_path)
    assert count == 1
    assert problem in reason
    assert REMEDY in reason
    told = re.findall(r"^ERROR holdfast\.worker (\d+) .*", said, flags=re.MULTILINE)
    mine = [line for line in said.splitlines() if line.startswith("ERROR") and problem in line and REMEDY in line]
    assert len(set(told)) >= 2, said  # the children and their parent
    assert mine, said
