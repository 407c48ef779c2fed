"""Bulk operations are alike on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import App, ConfigError, JobState
from holdfast.app import operations
from holdfast.app.bulk import JobSelection
from holdfast.app.operation import OperationState
from holdfast.errors import NotFound
from holdfast.model.ids import new_id
from holdfast.model.job import JobStateName

BATCH = 20
FAILED = JobSelection(JobState.FAILED)
READY = JobSelection(JobState.READY)
COMPLETED = JobSelection(JobState.COMPLETED)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "CHUNK", BATCH)


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


@pytest.fixture
def send(app: App):
    @app.task(queue="mail", max_attempts=1)
    async def send(n: int) -> int:
        return 1 // n

    return send


async def run_all(app: App) -> None:
    await app.worker(until_empty=True).run()


async def count(app: App, state: JobStateName) -> int:
    return len((await app.jobs.list(state, limit=1000)).jobs)


async def test_failed_jobs_are_retried_chunk_by_chunk(app: App, send):
    await send.enqueue_many([{"n": 0}] * (2 * BATCH + 1))
    await run_all(app)
    assert str(await app.operations.preview("retry", FAILED)) == str(2 * BATCH + 1)
    started = await app.operations.start("retry", FAILED, "ann")
    assert (started.state, started.expected.count, started.who) == (OperationState.RUNNING, 2 * BATCH + 1, "ann")
    assert await count(app, "failed") == 2 * BATCH + 1
    one = await app.operations.step(started.id)
    assert (one.counts, one.looked_at, one.state) == ({"retried": BATCH}, BATCH, OperationState.RUNNING)
    assert await app.operations.run_pending() == 2
    done = await app.operations.get(started.id)
    assert (done.state, done.counts) == (OperationState.DONE, {"retried": 2 * BATCH + 1})
    assert await count(app, "ready") == 2 * BATCH + 1
    assert await app.operations.run_pending() == 0
    assert await app.operations.step(started.id) == done
    assert await app.operations.list() == [done]


async def test_jobs_that_fail_after_the_start_are_not_retried(app: App, send):
    await send.enqueue_many([{"n": 0}] * 3)
    await run_all(app)
    operation = await app.operations.start("retry", FAILED, "ann")
    await send.enqueue(n=0)
    await run_all(app)
    await app.operations.run_pending()
    assert (await app.operations.get(operation.id)).counts == {"retried": 3}
    assert await count(app, "failed") == 1


async def test_a_job_that_was_retried_and_failed_again_is_not_retried_twice(app: App, send):
    job = await send.enqueue(n=0)
    await run_all(app)
    listed = (await app.jobs.list("failed")).jobs[0].finished_at
    assert await app.jobs.retry(job.id)
    await run_all(app)
    assert not await app.backend.jobs.retry(job.id, ended_by=listed)
    assert await app.backend.jobs.retry(job.id, ended_by=(await app.jobs.list("failed")).jobs[0].finished_at)


async def test_jobs_that_are_enqueued_after_the_start_are_not_cancelled(app: App, send):
    await send.enqueue_many([{"n": 1}] * (BATCH + 5))
    other = await send.options(queue="other").enqueue(n=1)
    operation = await app.operations.start(
        "cancel", JobSelection(JobState.READY, queue="mail"), "ann", reason="unwanted"
    )
    late = await send.enqueue(n=1)
    await app.operations.run_pending()
    done = await app.operations.get(operation.id)
    assert (done.counts, done.looked_at) == ({"cancelled": BATCH + 5}, BATCH + 6)
    assert [await job.state() for job in (late, other)] == [JobState.READY] * 2
    assert (await app.jobs.list("cancelled", limit=1)).jobs[0].reason == "unwanted"


async def test_finished_jobs_are_deleted_by_age(app: App, send):
    await send.enqueue_many([{"n": 1}] * (BATCH + 5))
    await run_all(app)
    old = JobSelection(JobState.COMPLETED, older_than=timedelta(hours=1))
    assert (await app.operations.preview("delete", old)).count == 0
    await app.operations.start("delete", old, "ann")
    operation = await app.operations.start("delete", COMPLETED, "ann")
    await app.operations.run_pending()
    assert (await app.operations.get(operation.id)).counts == {"deleted": BATCH + 5, "too_late": 0}
    assert await count(app, "completed") == 0
    assert [each.counts for each in await app.operations.list(before=operation.id)] == [{}]


async def test_a_cancelled_operation_goes_no_further(app: App, send):
    await send.enqueue_many([{"n": 1}] * (2 * BATCH))
    operation = await app.operations.start("cancel", READY, "ann")
    await app.operations.step(operation.id)
    ended = await app.operations.cancel(operation.id)
    assert (ended.state, ended.counts) == (OperationState.CANCELLED, {"cancelled": BATCH})
    assert await app.operations.run_pending() == 0
    assert await app.operations.cancel(operation.id) == ended
    assert await count(app, "ready") == BATCH


async def test_of_concurrent_steps_one_carries_out_the_chunk(app: App, send):
    await send.enqueue_many([{"n": 1}] * (3 * BATCH))
    operation = await app.operations.start("cancel", READY, "ann")
    await asyncio.gather(*(app.operations.step(operation.id) for _ in range(4)))
    seen = await app.operations.get(operation.id)
    assert seen.counts == {"cancelled": seen.looked_at}  # no job is counted twice, or as already cancelled
    await asyncio.gather(*(app.operations.run_pending() for _ in range(3)))
    done = await app.operations.get(operation.id)
    assert (done.state, done.counts) == (OperationState.DONE, {"cancelled": 3 * BATCH})


async def test_a_chunk_that_was_begun_and_not_recorded_is_repeated(app: App, send, monkeypatch: pytest.MonkeyPatch):
    await send.enqueue_many([{"n": 0}] * (BATCH + 5))
    await run_all(app)
    operation = await app.operations.start("retry", FAILED, "ann")

    async def die(*_: object) -> bool:
        raise KeyError("the process ends here")

    with monkeypatch.context() as broken:
        broken.setattr(operations.Operations, "_record", die)
        with pytest.raises(KeyError):
            await app.operations.step(operation.id)
    assert await app.operations.run_pending() == 0  # another process may be at it
    asked = await app.operations.get(operation.id)
    assert (asked.state, asked.looked_at) == (OperationState.RUNNING, 0)
    await run_all(app)  # the retried jobs fail again
    app.operations.held = timedelta(0)
    await app.operations.run_pending()
    done = await app.operations.get(operation.id)
    assert (done.state, done.counts) == (
        OperationState.DONE,
        {"retried": 5},
    )  # the chunk of the dead process is missing
    assert await count(app, "failed") == BATCH
    assert {job.attempt for job in (await app.jobs.list("failed", limit=1000)).jobs} == {2}


async def test_an_operation_whose_process_has_ended_can_be_cancelled(app: App, send, monkeypatch: pytest.MonkeyPatch):
    await send.enqueue_many([{"n": 1}] * (2 * BATCH))
    operation = await app.operations.start("cancel", READY, "ann")

    async def die(*_: object) -> bool:
        raise KeyError("the process ends here")

    with monkeypatch.context() as broken:
        broken.setattr(operations.Operations, "_record", die)
        with pytest.raises(KeyError):
            await app.operations.step(operation.id)
    assert (await app.operations.cancel(operation.id)).state is OperationState.RUNNING
    app.operations.held = timedelta(0)
    await app.operations.run_pending()
    assert (await app.operations.get(operation.id)).state is OperationState.CANCELLED
    assert await count(app, "ready") == BATCH


async def test_a_preview_stops_counting(app: App, send, monkeypatch: pytest.MonkeyPatch):
    await send.enqueue_many([{"n": 1}] * 12)
    monkeypatch.setattr(operations, "COUNTED", 10)
    assert str(await app.operations.preview("cancel", READY)) == "10+"
    assert str(await app.operations.preview("cancel", JobSelection(JobState.READY, task="none"))) == "0"


@pytest.mark.parametrize(
    ("action", "selection"),
    [
        ("fly", FAILED),
        ("retry", COMPLETED),
        ("cancel", FAILED),
        ("delete", READY),
        ("retry", JobSelection(JobState.FAILED, queue="a b")),
        ("retry", JobSelection(JobState.FAILED, older_than=timedelta(hours=1))),
    ],
)
async def test_what_does_not_fit_is_refused(app: App, action, selection):
    with pytest.raises(ConfigError):
        await app.operations.start(action, selection, "ann")
    assert await app.operations.list() == []


async def test_an_unknown_operation_is_not_found(app: App):
    for call in (app.operations.get, app.operations.step, app.operations.cancel):
        with pytest.raises(NotFound):
            await call(new_id())


def test_blocking_calls_do_the_same(file_app: App):
    with file_app.sync as app:
        started = app.operations.start("delete", FAILED, "ann")
        app.operations.run_pending()
        assert app.operations.get(started.id).state is OperationState.DONE
        app.audit.record("ann", "job.delete", "failed")
        assert len(app.audit.list()) == 1
