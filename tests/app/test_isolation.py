"""Where a job runs after its worker was lost: in a child process, unless its task opts out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.work import QUICK

from holdfast import App, ConfigError, JobHandle, JobState
from holdfast.model.budget import MAX_INTERRUPTED
from holdfast.store.values import ClaimRequest

SOON = 30.0
app = App("sqlite:///never-opened.db")  # at the top of a module, so that a child finds the tasks


@app.task
async def isolated() -> int:
    return os.getpid()


@app.task(isolate=False)
async def not_isolated() -> int:
    return os.getpid()


@app.task(isolate=False)
def not_isolated_in_thread() -> int:
    return os.getpid()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[App]:
    app.use(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        yield app


async def lose(app: App, task: str) -> None:
    """Let a worker claim the job and die; the worker knows a task that opts out."""
    lease = timedelta(seconds=30)
    request = ClaimRequest(worker_id="gone", tasks=(task,), limit=1, lease=lease, isolates=False)
    assert len((await app.backend.jobs.claim(request)).jobs) == 1
    await app.backend.jobs.rescue_worker("gone", "it was killed", 10)


async def pid_of(job: JobHandle) -> int:
    worker = app.worker(**QUICK)
    running = asyncio.create_task(worker.run())
    assert await job.wait(SOON) is JobState.COMPLETED
    worker.stop()
    await running
    return int(await job.result())


async def test_a_job_that_was_lost_runs_in_a_child_process(store: App):
    job = await isolated.enqueue()
    await lose(store, "isolated")
    assert await pid_of(job) != os.getpid()


@pytest.mark.parametrize("task", [not_isolated, not_isolated_in_thread], ids=["loop", "thread"])
async def test_a_job_of_a_task_that_opts_out_runs_in_the_worker_again(store: App, task):
    job = await task.enqueue()
    await lose(store, task.task.name)
    assert await pid_of(job) == os.getpid()


async def test_the_losses_of_a_job_that_opts_out_are_bounded(store: App):
    job = await not_isolated.options(max_attempts=2).enqueue()
    for _ in range(MAX_INTERRUPTED + 1):
        await lose(store, "not_isolated")
        assert await job.state() is JobState.READY
    await lose(store, "not_isolated")
    assert await job.state() is JobState.FAILED
    assert "worker lost too often" in str((await job.details()).job.reason)


def test_a_setting_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="isolate='no' is not a bool: pass True or False"):
        App().task(isolate="no")(isolated.task.handler)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match='isolate=False contradicts executor="process": leave out one of them'):
        App().task(isolate=False, executor="process")(isolated.task.handler)
