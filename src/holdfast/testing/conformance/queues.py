"""Queues: pause and resume, and outstanding work."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

from msgspec import structs

from holdfast.model.job import JobState
from holdfast.store.backend import Backend
from holdfast.store.values import Outstanding, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    bring_to,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    queue_view,
)


def left(
    *, ready: int = 0, retrying: int = 0, running: int = 0, delayed: int = 0, paused: int = 0, unknown: int = 0
) -> Outstanding:
    """Return the outstanding work, zero where not given."""
    return Outstanding(
        ready=ready,
        retrying=retrying,
        blocked=0,
        running=running,
        delayed=delayed,
        paused=paused,
        unknown=unknown,
    )


class TestQueues(Conformance):
    """`QueueStore`."""

    async def test_a_queue_exists_from_its_first_job(self, backend: Backend) -> None:
        assert await backend.insight.queues() == []
        await enqueue(backend, a_job("mail"), a_job("mail"))
        view = await queue_view(backend, "mail")
        assert (view.paused, view.ready) == (False, 2)

    async def test_the_depth_of_a_queue_counts_its_ready_jobs_only(self, backend: Backend) -> None:
        assert await backend.insight.depth("mail") == 0
        await enqueue(backend, a_job("mail"), a_job("mail", task="other"), a_job("mail"), a_job("fax"))
        await enqueue(backend, a_job("mail", delay=timedelta(hours=1)))
        assert await backend.insight.depth("mail") == 3
        await claim(backend, 1, queues=("mail",))
        assert await backend.insight.depth("mail") == 2
        await backend.queues.pause("mail")
        assert await backend.insight.depth("mail") == 2
        assert await backend.insight.depth("fax") == 1

    async def test_pause_answers_false_if_it_was_paused(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail"))
        assert await backend.queues.pause("mail")
        assert not await backend.queues.pause("mail")
        assert (await queue_view(backend, "mail")).paused

    async def test_resume_answers_false_if_it_was_not_paused(self, backend: Backend) -> None:
        assert not await backend.queues.resume("mail")
        await enqueue(backend, a_job("mail"))
        assert not await backend.queues.resume("mail")
        await backend.queues.pause("mail")
        assert await backend.queues.resume("mail")
        assert not (await queue_view(backend, "mail")).paused

    async def test_a_queue_may_be_paused_before_its_first_job(self, backend: Backend) -> None:
        assert await backend.queues.pause("mail")
        (job_id,) = await enqueue(backend, a_job("mail"))
        assert await claim(backend) == []
        await backend.queues.resume("mail")
        assert [job.id for job in await claim(backend)] == [job_id]

    async def test_pausing_leaves_running_jobs_alone(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await backend.queues.pause("default")
        assert await finish(backend, job.lease, OUTCOMES["completed"]) is Verdict.DONE

    async def test_a_job_that_comes_back_to_a_paused_queue_waits(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend)
        (delayed,) = await enqueue(backend, a_job(delay=timedelta(seconds=1)))
        await backend.queues.pause("default")
        await backend.jobs.release([job.lease], started=False)
        clock.advance(2)
        assert (await backend.jobs.promote(MANY)).moved == 1
        assert await claim(backend) == []
        await backend.queues.resume("default")
        assert [each.id for each in await claim(backend)] == [job.id, delayed]


class TestTasks(Conformance):
    """A task may be paused as a queue may."""

    async def test_a_claim_takes_none_of_a_paused_task_in_any_queue(self, backend: Backend) -> None:
        held = await enqueue(backend, a_job("mail", task="greet"), a_job("sale", task="greet"))
        (other,) = await enqueue(backend, a_job("mail", task="other"))
        assert await backend.queues.pause_task("greet")
        assert [job.id for job in await claim(backend, tasks=("greet", "other"))] == [other]
        assert await backend.queues.resume_task("greet")
        assert {job.id for job in await claim(backend)} == set(held)

    async def test_pause_and_resume_return_whether_they_changed_something(self, backend: Backend) -> None:
        assert not await backend.queues.resume_task("greet")
        assert await backend.queues.pause_task("greet")
        assert not await backend.queues.pause_task("greet")
        assert await backend.queues.resume_task("greet")
        assert not await backend.queues.resume_task("greet")

    async def test_a_task_may_be_paused_before_its_first_job(self, backend: Backend) -> None:
        await backend.queues.pause_task("greet")
        (job_id,) = await enqueue(backend, a_job(task="greet"))
        assert await claim(backend) == []
        await backend.queues.resume_task("greet")
        assert [job.id for job in await claim(backend)] == [job_id]

    async def test_resuming_a_task_leaves_its_paused_queue_paused(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail", task="greet"))
        await backend.queues.pause("mail")
        await backend.queues.pause_task("greet")
        await backend.queues.resume_task("greet")
        assert await claim(backend) == []

    async def test_tasks_are_listed_with_their_counts_over_all_queues(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail", task="greet"), a_job("sale", task="greet"), a_job("mail", task="other"))
        await claim(backend, 1, queues=("sale",))
        await backend.queues.pause_task("unborn")
        views = {view.name: view for view in await backend.insight.tasks()}
        assert sorted(views) == ["greet", "other", "unborn"]
        assert (views["greet"].ready, views["greet"].running, views["greet"].paused) == (1, 1, False)
        assert (views["unborn"].ready, views["unborn"].paused, views["unborn"].oldest_ready) == (0, True, None)

    async def test_jobs_of_a_paused_task_do_not_keep_a_worker(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail", task="greet"))
        await backend.queues.pause_task("greet")
        assert await backend.jobs.outstanding(("greet",), None) == left(paused=1)

    async def test_a_job_behind_a_running_head_of_a_paused_task_keeps_a_worker(self, backend: Backend) -> None:
        await enqueue(backend, *(structs.replace(a_job(task=task), order_key="a") for task in ("greet", "other")))
        (head,) = await claim(backend)
        await backend.queues.pause_task("greet")
        outstanding = await backend.jobs.outstanding(("greet", "other"), None)
        assert (outstanding.blocked, outstanding.running, outstanding.paused) == (1, 1, 0)
        await finish(backend, head.lease, OUTCOMES["completed"])
        assert [job.task for job in await claim(backend, tasks=("greet", "other"))] == ["other"]


class TestOutstanding(Conformance):
    """`JobStore.outstanding`."""

    async def test_an_empty_store_has_nothing_left_to_do(self, backend: Backend) -> None:
        outstanding = await backend.jobs.outstanding(["greet"], None)
        assert outstanding == left()
        assert outstanding.is_empty

    async def test_it_counts_ready_retrying_and_running_jobs(self, backend: Backend) -> None:
        await bring_to(backend, JobState.RUNNING)
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES["retried"])
        await bring_to(backend, JobState.COMPLETED)
        await enqueue(backend, a_job(), a_job(delay=timedelta(seconds=9)))
        outstanding = await backend.jobs.outstanding(["greet"], None)
        assert outstanding == left(ready=1, retrying=1, running=1, delayed=1)
        assert not outstanding.is_empty

    async def test_a_job_that_its_caller_delayed_does_not_keep_a_worker(self, backend: Backend) -> None:
        await enqueue(backend, a_job(delay=timedelta(seconds=9)))
        outstanding = await backend.jobs.outstanding(["greet"], None)
        assert outstanding == left(delayed=1)
        assert outstanding.is_empty

    async def test_jobs_of_paused_queues_and_of_unknown_tasks_do_not_keep_a_worker(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail"), a_job(task="unknown"))
        await backend.queues.pause("mail")
        outstanding = await backend.jobs.outstanding(["greet"], None)
        assert outstanding == left(paused=1, unknown=1)
        assert outstanding.is_empty

    async def test_it_counts_the_queues_that_are_served_only(self, backend: Backend) -> None:
        await enqueue(backend, a_job("mail"), a_job("sale"), a_job("sale"))
        assert (await backend.jobs.outstanding(["greet"], ["sale"])).ready == 2
        assert (await backend.jobs.outstanding(["greet"], ["mail"])).ready == 1
        assert (await backend.jobs.outstanding(["greet"], ["file"])).ready == 0

    async def test_it_follows_a_job_through_its_life(self, backend: Backend, clock: ManualClock) -> None:
        await enqueue(backend, a_job())
        assert await backend.jobs.outstanding(["greet"], None) == left(ready=1)
        job = await claim_one(backend)
        assert await backend.jobs.outstanding(["greet"], None) == left(running=1)
        await finish(backend, job.lease, OUTCOMES["retried"])
        assert await backend.jobs.outstanding(["greet"], None) == left(retrying=1)
        clock.advance(60)
        await backend.jobs.promote(MANY)
        assert await backend.jobs.outstanding(["greet"], None) == left(ready=1)
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await backend.jobs.outstanding(["greet"], None) == left()
