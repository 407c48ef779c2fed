"""What a person does to jobs and queues."""

from __future__ import annotations

import pytest
from tests.app.work import run_all, working

from holdfast import App, JobState
from holdfast.errors import JobNotFound


@pytest.fixture
def task(app: App):
    @app.task(queue="mail", max_attempts=1)
    async def send(n: int) -> int:
        if n < 0:
            raise ValueError(f"negative {n}")
        return n

    return send


async def test_jobs_are_listed_by_state_queue_and_task_a_page_at_a_time(app, task):
    @app.task(queue="other")
    async def other() -> None: ...

    await task.enqueue_many([{"n": n} for n in range(5)])
    await other.enqueue()

    page = await app.jobs.list(JobState.READY, queue="mail", limit=2)
    pages = [page]
    while page.cursor:
        page = await app.jobs.list("ready", queue="mail", limit=2, cursor=page.cursor)
        pages.append(page)

    assert sorted(len(page.jobs) for page in pages if page.jobs) == [1, 2, 2]
    assert len({job.id for page in pages for job in page.jobs}) == 5
    assert [job.task for job in (await app.jobs.list("ready", task="other")).jobs] == ["other"]
    assert (await app.jobs.list("running")).jobs == []


async def test_a_failed_job_shows_why_and_runs_again_when_sent_back(app, task):
    job = await task.enqueue(n=-1)
    await run_all(app)

    details = await app.jobs.show(job.id.upper())
    assert (details.job.state, details.job.reason) == (JobState.FAILED, "ValueError: negative -1")
    assert details.payload == '[[],{"n":-1}]'
    (attempt,) = details.attempts
    assert attempt.traceback is not None
    assert "test_admin.py" in attempt.traceback

    assert await app.jobs.retry(job.id)
    assert not await app.jobs.retry(job.id)
    await run_all(app)
    details = await app.jobs.show(job.id)
    assert (details.job.state, details.job.attempt) == (JobState.FAILED, 2)


async def test_a_copy_of_a_completed_job_runs_by_itself(app, task):
    job = await task.enqueue(n=3)
    await run_all(app)
    copy_id = await app.jobs.copy(job.id)
    assert copy_id != job.id
    await run_all(app)
    first, second = await app.jobs.show(job.id), await app.jobs.show(copy_id)
    assert (first.payload, first.job.state, first.job.attempt) == (second.payload, JobState.COMPLETED, 1)
    assert second.job.state == JobState.COMPLETED
    with pytest.raises(JobNotFound):
        await app.jobs.copy("01a1df9b-b249-70ae-9258-60c23e04117f")


async def test_reset_answers_false_for_a_job_that_does_not_run(app, task):
    job = await task.enqueue(n=1)

    assert not await app.jobs.reset(job.id)
    await app.claim("mail")
    assert await app.jobs.reset(job.id)
    assert await job.state() is JobState.READY


async def test_a_paused_queue_waits_and_goes_on_when_resumed(app, task):
    job = await task.enqueue(n=1)
    assert await app.queues.pause("mail")
    assert not await app.queues.pause("mail")

    worker = await run_all(app)
    assert await job.state() is JobState.READY
    assert worker.left is not None
    assert worker.left.paused == 1
    (view,) = await app.queues.list()
    assert (view.name, view.paused, view.ready) == ("mail", True, 1)

    async with working(app, poll_interval=20):
        assert await app.queues.resume("mail")
        assert await job.wait(10) is JobState.COMPLETED
    assert not await app.queues.resume("mail")


async def test_a_paused_task_waits_and_goes_on_when_resumed(app, task):
    job = await task.enqueue(n=1)
    assert await app.tasks.pause(task.name)

    worker = await run_all(app)
    assert await job.state() is JobState.READY
    assert worker.left is not None
    assert worker.left.paused == 1

    async with working(app, poll_interval=20):
        assert await app.tasks.resume(task.name)
        assert await job.wait(10) is JobState.COMPLETED


async def test_counts_tell_what_happened(app, task):
    await task.enqueue_many([{"n": 1}, {"n": 2}, {"n": -1}])
    await run_all(app)

    counts = await app.jobs.counts()

    assert sum(count.enqueued for count in counts) == 3
    assert (sum(count.completed for count in counts), sum(count.failed for count in counts)) == (2, 1)
    assert {(count.queue, count.task) for count in counts} == {("mail", "send")}


async def test_nothing_that_is_printed_shows_the_arguments(app, task, caplog):
    secret = 815_4711
    job = await task.options(headers={"token": "hunter2"}).enqueue(n=secret)
    (held,) = await app.claim("mail")
    shown = [repr(thing) for thing in (app, task, job, held, job.sync, app.sync, task.options(delay=1))]
    await held.retry("x")
    await run_all(app)
    await task.enqueue(n=-secret)

    for text in [*shown, caplog.text]:
        assert str(secret) not in text
        assert "hunter2" not in text


async def test_the_lists_of_a_job_show_no_arguments(app, task):
    await task.enqueue(n=815_4711)

    for thing in (await app.jobs.list("ready"), await app.queues.list(), await app.jobs.counts()):
        assert "8154711" not in repr(thing)
