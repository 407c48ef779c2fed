"""Large payloads in a worker with default settings: its memory depends on what a claim may hold, not on what waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.stores import Store

from holdfast import App

PAYLOAD = 200_000
MOST = 64  # megabytes above a worker of small jobs
PROGRAM = """
import asyncio, logging, sys
from holdfast import App

logging.disable(logging.WARNING)
app = App(sys.argv[1])
taken = 0

@app.task(name="take")
async def take(text: str) -> None:
    global taken
    taken += 1

async def main() -> None:
    await app.worker(until_empty=True).run()
    await app.close()

asyncio.run(main())
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(taken, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return program


async def enqueue(store: Store, count: int, size: int) -> None:
    app = App(store.url)

    @app.task(name="take")
    async def take(text: str) -> None: ...

    for _ in range(0, count, 50):
        await take.enqueue_many([{"text": "x" * size}] * 50)
    await app.close()


def run(program: Path, store: Store) -> tuple[int, int]:
    """Run all jobs in a process of its own; return how many, and its largest memory in megabytes."""
    done = subprocess.run([sys.executable, program, store.url], check=True, capture_output=True, text=True)
    taken, memory = done.stdout.split()
    return int(taken), int(memory)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_the_memory_of_a_worker_stays_small(store: Store, program: Path):
    await enqueue(store, 1000, 10)
    small, idle = run(program, store)
    await enqueue(store, 500, PAYLOAD)
    large, memory = run(program, store)
    assert (small, large) == (1000, 500)
    assert memory - idle < MOST, f"{memory} MB instead of {idle}, for payloads of {500 * PAYLOAD // 10**6} MB"
