"""What the tests of job children share: a pool, jobs, and how to wait for a handler."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import psutil
import pytest
from tests.system.apps import children_app as app

from holdfast.model.ids import new_id
from holdfast.model.job import LeasedJob
from holdfast.worker.job_child.pool import ChildPool

SOON = 10.0
_seqs = itertools.count(1)


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv(app.URL, url)
    return url


@pytest.fixture
async def pool():
    pool = ChildPool(lease=app.LEASE, limit=2)
    yield pool
    await pool.close()
    assert children() == [], "a child or a zombie was left behind"


def children() -> list[psutil.Process]:
    """Return the job children of this process, dead ones not yet waited for too; a test server is not meant."""
    return [process for process in psutil.Process().children() if _is_job_child(process)]


def _is_job_child(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE or "holdfast.worker.job_child.program" in process.cmdline()
    except psutil.NoSuchProcess:  # ended between the two looks
        return False


def job_for(handle, *args, lost: int = 0, attempt: int = 1, **kwargs) -> LeasedJob:
    return LeasedJob(
        id=new_id(),
        seq=next(_seqs),
        queue="default",
        task=handle.task.name,
        payload=handle.task.signature.encode(args, kwargs),
        headers=None,
        priority=0,
        max_attempts=5,
        timeout=None,
        _enqueued_us=0,
        turn=0,
        attempt=attempt,
        excused=0,
        interrupted=0,
        lost=lost,
        fence=1,
    )


async def run(pool: ChildPool, handle, *args, timeout: float | None = SOON, **kwargs):
    return await pool.run(handle.task, job_for(handle, *args, **kwargs), timeout=timeout)


def wait_for(mark: Path) -> str:
    deadline = time.monotonic() + SOON
    while not mark.exists():
        assert time.monotonic() < deadline, "the handler did not begin"
        time.sleep(0.01)  # another process writes it: there is no event here to await
    return mark.read_text()


async def begun(mark: Path) -> str:
    return await asyncio.to_thread(wait_for, mark)
