"""Many jobs are cancelled and deleted alike by every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import App, Cancellation, ConfigError, JobNotFound, JobState
from holdfast.app.bulk import BATCH, SelectedIds
from holdfast.model.ids import new_id


@pytest.fixture
def app(on_each_store: App) -> App:
    return on_each_store


@pytest.fixture
def send(app: App):
    @app.task(queue="mail", max_attempts=1)
    async def send(n: int) -> int:
        return 1 // n

    return send


async def _run(app: App) -> None:
    await app.worker(until_empty=True).run()


async def test_all_jobs_in_a_state_are_cancelled_in_batches(app: App, send):
    await send.enqueue_many([{"n": n} for n in range(BATCH * 2 + 1)])
    late = await send.options(delay=60).enqueue(n=1)
    assert await app.jobs.cancel_all("ready", reason="unwanted") == {Cancellation.CANCELLED: BATCH * 2 + 1}
    assert await app.jobs.cancel_all("ready") == {}
    assert await late.state() is JobState.SCHEDULED


async def test_a_filter_and_a_limit_narrow_what_is_cancelled(app: App, send):
    await send.enqueue_many([{"n": n} for n in range(3)])
    other = await send.options(queue="other").enqueue(n=1)
    assert await app.jobs.cancel_all("ready", queue="mail", limit=2) == {Cancellation.CANCELLED: 2}
    assert await app.jobs.cancel_all("ready", queue="mail", task="nope") == {}
    assert await app.jobs.cancel_all(JobState.READY, queue="mail", task=send.task.name) == {Cancellation.CANCELLED: 1}
    assert await other.state() is JobState.READY


async def test_running_jobs_are_asked_to_stop(app: App, send):
    await send.enqueue(n=1)
    (held,) = await app.claim("mail", limit=1)
    assert await app.jobs.cancel_all("running") == {Cancellation.ASKED: 1}
    await held.complete()


async def test_finished_jobs_are_deleted_by_state_queue_task_and_age(app: App, send):
    await send.enqueue_many([{"n": n} for n in (0, 0, 1)])
    await _run(app)
    assert await app.jobs.delete_all("failed", older_than=3600) == 0
    assert await app.jobs.delete_all("failed", queue="other") == 0
    assert await app.jobs.delete_all("failed", queue="mail", task=send.task.name, limit=1) == 1
    assert await app.jobs.delete_all("failed", older_than=timedelta(0)) == 1
    assert [len((await app.jobs.list(state)).jobs) for state in ("failed", "completed")] == [0, 1]


async def test_one_job_is_deleted_once_it_has_ended_and_its_id_is_free(app: App, send):
    job = await send.enqueue(n=1)
    with pytest.raises(ConfigError, match="is ready, and only finished jobs can be deleted: cancel it first"):
        await app.jobs.delete(job.id)
    await app.jobs.cancel(job.id)
    await app.jobs.delete(job.id)
    with pytest.raises(JobNotFound):
        await app.jobs.delete(job.id)
    again = await send.options(job_id=job.id).enqueue(n=1)
    assert again.created


async def test_a_running_job_is_not_deleted(app: App, send):
    await send.enqueue(n=1)
    (held,) = await app.claim("mail", limit=1)
    with pytest.raises(ConfigError, match="wait until it has ended"):
        await app.jobs.delete(held.id)
    await held.complete()


@pytest.mark.parametrize("state", ["completed", "nope", None])
async def test_what_has_ended_is_not_cancelled_in_bulk(app: App, state):
    with pytest.raises(ConfigError, match="pass one of scheduled, blocked, ready, running"):
        await app.jobs.cancel_all(state)


@pytest.mark.parametrize("state", ["running", "ready", "nope"])
async def test_what_has_not_ended_is_not_deleted_in_bulk(app: App, state):
    with pytest.raises(ConfigError, match="pass one of cancelled, completed, failed"):
        await app.jobs.delete_all(state)


@pytest.mark.parametrize("limit", [0, -1, True, "2"])
async def test_a_limit_that_bounds_nothing_is_refused(app: App, limit):
    for change in (app.jobs.cancel_all("ready", limit=limit), app.jobs.delete_all("failed", limit=limit)):
        with pytest.raises(ConfigError, match="limit"):
            await change


def test_ids_are_kept_small_and_given_in_batches():
    ids = SelectedIds()
    given = [new_id() for _ in range(BATCH + 1)]
    for job_id in given:
        ids.add(job_id)
    assert len(ids) == BATCH + 1
    assert [len(batch) for batch in ids.batches()] == [BATCH, 1]
    assert [job_id for batch in ids.batches() for job_id in batch] == given
