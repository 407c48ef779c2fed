"""A bulk operation whose processes are killed, while the jobs that it retries run and fail again at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import App
from holdfast.app.bulk import JobSelection
from holdfast.app.operation import OperationState, OperationView
from holdfast.model.ids import new_ids
from holdfast.model.job import JobState, NewJob
from holdfast.model.outcome import Failed, Failure
from holdfast.store.values import ClaimRequest, Finish

JOBS = 10_000
KILLS = 3
HELD = 5.0  # seconds; a chunk that takes longer on a busy machine is taken over from a living process, too
TASK = "break"
FAILURE = Failed(Failure("ValueError", "no such order", "Traceback …", "5e1f"))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_each_job_is_retried_once_though_the_processes_of_an_operation_are_killed(ledger, workers):
    count = JOBS if ledger.store.one_writer else JOBS // 4  # the path is the same; a server takes more round trips
    done, attempts = asyncio.run(_carry_out(ledger.store.url, workers, count))
    assert done.state is OperationState.DONE
    assert attempts == {2: count}  # the failed one, and that of the only retry
    lost = count - done.counts["retried"]
    assert 0 <= lost <= KILLS * 200  # chunks that a killed process had carried out, and not recorded
    assert done.counts.keys() <= {"retried", "too_late"}


async def _carry_out(url: str, workers, count: int) -> tuple[OperationView, Counter[int]]:
    async with App(url) as app:
        jobs = [NewJob(id=each, queue="default", task=TASK, payload="{}", max_attempts=1) for each in new_ids(count)]
        await app.backend.jobs.enqueue(jobs)
        while await _fail_ready(app):
            pass
        operation = await app.operations.start("retry", JobSelection(JobState.FAILED, task=TASK), "test")
        failing = asyncio.create_task(_fail_until(app, operation.id))
        for kill in range(1, KILLS + 1):
            program = _start(workers, operation.id)
            while (await app.operations.get(operation.id)).looked_at < kill * count // (KILLS + 2):
                assert program.process.poll() is None, program.text
                await asyncio.sleep(0.01)
            program.kill()
        for program in [_start(workers, operation.id) for _ in range(2)]:
            assert await asyncio.to_thread(program.end, within=180.0) == 0, program.text
        await failing
        ended = await app.jobs.list("failed", task=TASK, limit=count + 1)
        return await app.operations.get(operation.id), Counter(job.attempt for job in ended.jobs)


def _start(workers, operation_id: str):
    return workers.program("tests.system.apps.operation_program", operation_id, str(HELD))


async def _fail_until(app: App, operation_id: str) -> None:
    """Let every job that is retried fail again, until the operation has ended and nothing is ready."""
    is_running = True
    while await _fail_ready(app) or is_running:
        is_running = (await app.operations.get(operation_id)).state is OperationState.RUNNING


async def _fail_ready(app: App) -> int:
    request = ClaimRequest(worker_id="failing", tasks=(TASK,), limit=500, lease=timedelta(seconds=60))
    jobs = (await app.backend.jobs.claim(request)).jobs
    await app.backend.jobs.finish([Finish(job.lease, FAILURE) for job in jobs])
    return len(jobs)
