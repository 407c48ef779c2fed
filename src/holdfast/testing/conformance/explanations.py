"""Why a job is not running: each cause, found from what the store contains."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

import msgspec
import pytest

from holdfast.errors import JobNotFound
from holdfast.model.explanation import (
    MOST_AHEAD,
    Cause,
    Ended,
    HolderSilent,
    LimitReached,
    NextUp,
    NoLongerBlocked,
    NotDue,
    OrderKeyHeld,
    QueuePaused,
    QueueUnserved,
    RateLimited,
    Running,
    TaskPaused,
    TaskUnknown,
    WaitingForJobs,
    WorkersBusy,
    explain,
)
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, NewJob
from holdfast.model.job_facts import HolderFact, ParentFact
from holdfast.model.limits import Limit, LimitKey
from holdfast.store.backend import Backend
from holdfast.store.values import WaitingTask, WorkerHeartbeat
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    in_extender,
)
from holdfast.testing.conformance.parents import after


async def why(backend: Backend, job_id: str) -> Cause:
    """Return the cause that keeps a job from running."""
    return explain(await backend.insight.job_facts(job_id)).cause


async def send_heartbeat(
    backend: Backend,
    worker_id: str = "worker-a",
    *,
    queues: tuple[str, ...] | None = None,
    tasks: tuple[str, ...] | None = ("greet",),
    concurrency: int = 1,
) -> None:
    """Send the heartbeat of a worker."""
    heartbeat = WorkerHeartbeat(
        worker_id=worker_id,
        host="here",
        pid=7,
        queues=queues,
        concurrency=concurrency,
        lease=LEASE,
        running=0,
        tasks=tasks,
    )
    await in_extender(backend, lambda extender: extender.heartbeat(heartbeat))


def keyed(key: str = "customer-3", *, delay: timedelta | None = None) -> NewJob:
    """Return a job with an order key."""
    return msgspec.structs.replace(a_job(delay=delay), order_key=key)


class TestExplanations(Conformance):
    """`Insight.job_facts` and `model.explanation`."""

    async def test_a_job_that_is_not_known_raises_job_not_found(self, backend: Backend) -> None:
        with pytest.raises(JobNotFound):
            await backend.insight.job_facts(new_id())

    async def test_it_is_not_due_until(self, backend: Backend, clock: ManualClock) -> None:
        await send_heartbeat(backend)
        (job_id,) = await enqueue(backend, a_job(delay=timedelta(seconds=60)))
        assert await why(backend, job_id) == NotDue(clock.now + timedelta(seconds=60), 0)

    async def test_it_is_not_due_again_after_a_failed_attempt(self, backend: Backend, clock: ManualClock) -> None:
        await send_heartbeat(backend)
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES["retried"])
        assert await why(backend, job.id) == NotDue(clock.now + timedelta(seconds=10), 1)

    async def test_a_due_job_that_no_worker_has_moved_to_ready_has_no_worker(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        (job_id,) = await enqueue(backend, a_job(delay=timedelta(seconds=1)))
        clock.advance(2)
        assert await why(backend, job_id) == QueueUnserved("default", 0)

    async def test_its_queue_is_paused(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job("mail"))
        await backend.queues.pause("mail")
        assert await why(backend, job_id) == QueuePaused("mail")

    async def test_its_task_is_paused(self, backend: Backend) -> None:
        await send_heartbeat(backend)
        (job_id,) = await enqueue(backend, a_job())
        await backend.queues.pause_task("greet")
        assert await why(backend, job_id) == TaskPaused("greet")
        assert [waiting.paused for waiting in await backend.insight.waiting_tasks()] == [True]
        await backend.queues.resume_task("greet")
        assert isinstance(await why(backend, job_id), NextUp)

    async def test_a_running_job_holds_its_order_key(self, backend: Backend, clock: ManualClock) -> None:
        await send_heartbeat(backend)
        head, behind = await enqueue(backend, keyed(), keyed())
        await claim_one(backend)
        cause = await why(backend, behind)
        assert isinstance(cause, OrderKeyHeld)
        assert (cause.order_key, cause.head.job_id, cause.head.state) == ("customer-3", head, JobState.RUNNING)
        assert cause.head.cause == Running("worker-a", clock.now)

    async def test_a_head_that_is_not_due_explains_the_jobs_behind_it(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        _, behind = await enqueue(backend, keyed(delay=timedelta(seconds=60)), keyed())
        cause = await why(backend, behind)
        assert isinstance(cause, OrderKeyHeld)
        assert cause.head.cause == NotDue(clock.now + timedelta(seconds=60), 0)

    async def test_jobs_that_it_comes_after_have_not_ended(self, backend: Backend) -> None:
        await send_heartbeat(backend)
        first, second = await enqueue(backend, a_job(), a_job(task="other"))
        child, alike = after(first, second, order_key="customer-3"), keyed()
        await enqueue(backend, alike, child)
        seqs = {job_id: (await backend.insight.job(job_id)).job.seq for job_id in (first, second)}
        held = await claim_one(backend)
        running = ParentFact(first, seqs[first], "greet", is_running=True)
        waiting = ParentFact(second, seqs[second], "other", is_running=False)
        assert await why(backend, child.id) == WaitingForJobs(2, (running, waiting))
        await finish(backend, held.lease, OUTCOMES["completed"])
        assert await why(backend, child.id) == WaitingForJobs(1, (waiting,))

    async def test_a_worker_runs_it(self, backend: Backend, clock: ManualClock) -> None:
        await send_heartbeat(backend)
        job = await hold_one(backend)
        assert await why(backend, job.id) == Running("worker-a", clock.now)

    async def test_a_caller_of_claim_sends_no_heartbeat_and_runs_it(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend, worker_id="caller.1")
        assert await why(backend, job.id) == Running("caller.1", clock.now)
        since = clock.now
        clock.advance(LEASE + timedelta(seconds=5))
        assert await why(backend, job.id) == HolderSilent(
            "caller.1", None, since + LEASE, is_expired=True, live_workers=0
        )

    async def test_a_worker_without_heartbeat_holds_it_until_its_lease_ends(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await send_heartbeat(backend)
        job = await hold_one(backend)
        until = clock.now + LEASE
        silent = timedelta(seconds=20)
        clock.advance(silent)
        await send_heartbeat(backend, "worker-b")
        assert await why(backend, job.id) == HolderSilent("worker-a", silent, until, is_expired=False, live_workers=2)

    async def test_no_worker_is_alive(self, backend: Backend, clock: ManualClock) -> None:
        (job_id,) = await enqueue(backend, a_job())
        assert await why(backend, job_id) == QueueUnserved("default", 0)
        await send_heartbeat(backend)
        assert isinstance(await why(backend, job_id), NextUp)
        clock.advance(LEASE + timedelta(seconds=1))
        assert await why(backend, job_id) == QueueUnserved("default", 0)

    async def test_no_live_worker_serves_its_queue(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job("mail"))
        await send_heartbeat(backend, queues=("orders",))
        assert await why(backend, job_id) == QueueUnserved("mail", 1)

    async def test_no_live_worker_of_its_queue_knows_its_task(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(task="charge"))
        await send_heartbeat(backend, tasks=("greet",))
        await send_heartbeat(backend, "worker-b", queues=("orders",), tasks=("charge",))
        assert await why(backend, job_id) == TaskUnknown("default", "charge", ("worker-a",))
        await send_heartbeat(backend, "worker-c", tasks=("charge", "greet"))
        assert isinstance(await why(backend, job_id), NextUp)

    async def test_a_worker_that_reported_no_tasks_may_know_it(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(task="charge"))
        await send_heartbeat(backend, tasks=None)
        assert isinstance(await why(backend, job_id), NextUp)

    @pytest.mark.parametrize("key", [LimitKey("queue", "default"), LimitKey("task", "greet")])
    async def test_a_limit_is_reached_and_its_holders_are_named(self, backend: Backend, key: LimitKey) -> None:
        await send_heartbeat(backend, concurrency=10)
        await backend.queues.limit(key, Limit(running=1))
        held = await hold_one(backend)
        (job_id,) = await enqueue(backend, a_job())
        holder = HolderFact(held.id, held.seq, "default", "greet", "worker-a")
        assert await why(backend, job_id) == LimitReached(*key, 1, 1, (holder,))
        await finish(backend, held.lease, OUTCOMES["completed"])
        assert isinstance(await why(backend, job_id), NextUp)

    async def test_a_rate_allows_no_start_until(self, backend: Backend, clock: ManualClock) -> None:
        await send_heartbeat(backend, concurrency=10)
        key = LimitKey("task", "greet")
        await backend.queues.limit(key, Limit(rate="3/m"))
        await hold_one(backend)
        (job_id,) = await enqueue(backend, a_job())
        assert await why(backend, job_id) == RateLimited(*key, "3/m", clock.now + timedelta(seconds=20))
        clock.advance(20)
        assert isinstance(await why(backend, job_id), NextUp)

    async def test_all_workers_are_busy_and_jobs_are_ahead(self, backend: Backend) -> None:
        await send_heartbeat(backend, concurrency=2)
        await enqueue(backend, a_job(), a_job())
        assert len(await claim(backend, 2)) == 2
        await enqueue(backend, a_job("mail"), a_job(), a_job(task="unknown"), a_job("closed"))
        await backend.queues.pause("closed")
        (job_id,) = await enqueue(backend, a_job())
        await enqueue(backend, a_job())
        assert await why(backend, job_id) == WorkersBusy(2, is_ahead_capped=False, workers=1, slots=2)

    async def test_a_free_worker_will_claim_it_after_the_jobs_ahead(self, backend: Backend) -> None:
        await send_heartbeat(backend)
        first, second = await enqueue(backend, a_job(), a_job())
        assert await why(backend, first) == NextUp(0, is_ahead_capped=False, workers=1)
        assert await why(backend, second) == NextUp(1, is_ahead_capped=False, workers=1)

    async def test_jobs_ahead_are_counted_up_to_a_limit(self, backend: Backend) -> None:
        await send_heartbeat(backend)
        await backend.jobs.enqueue([a_job() for _ in range(MOST_AHEAD + 1)])
        (job_id,) = await enqueue(backend, a_job())
        assert await why(backend, job_id) == NextUp(MOST_AHEAD, is_ahead_capped=True, workers=1)

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    async def test_it_has_ended(self, backend: Backend, clock: ManualClock, state: str) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES[state])
        explanation = explain(await backend.insight.job_facts(job.id))
        assert explanation.state == state
        cause = explanation.cause
        assert isinstance(cause, Ended)
        assert (cause.finished_at, cause.why is None) == (clock.now, state == "completed")


class TestExplanationsAfterTransactions(Conformance):
    """Parents that ended inside a handler's transaction, which has released no job after its commit."""

    needs: ClassVar[frozenset[str]] = frozenset({"joins_transactions"})

    @pytest.mark.parametrize("order_key", [None, "customer-3"])
    async def test_a_child_is_blocked_although_its_parents_have_ended(
        self, backend: Backend, order_key: str | None
    ) -> None:
        (parent,) = await enqueue(backend, a_job())
        (child,) = await enqueue(backend, after(parent, order_key=order_key))
        job = await claim_one(backend)
        async with backend.transactions.begin(job.lease, limit=timedelta(seconds=10)) as transaction:
            await transaction.complete(job.lease, None)
        assert await why(backend, child) == QueueUnserved("default", 0)
        await send_heartbeat(backend)
        assert await why(backend, child) == NoLongerBlocked()
        await hold_one(backend)  # by the only worker, which is busy with it
        assert await why(backend, child) == NoLongerBlocked()
        await backend.jobs.promote(MANY)
        assert isinstance(await why(backend, child), WorkersBusy)


class TestWorkersReports(Conformance):
    """The tasks that workers report, and the tasks that wait."""

    async def test_the_tasks_of_a_worker_are_those_of_its_first_heartbeat(self, backend: Backend) -> None:
        await send_heartbeat(backend, tasks=("charge", "greet"))
        await send_heartbeat(backend, tasks=("other",))
        (worker,) = await backend.insight.workers()
        assert worker.heartbeat.tasks == ("charge", "greet")

    async def test_the_running_jobs_of_a_worker_are_its_leases(self, backend: Backend) -> None:
        await send_heartbeat(backend)
        await send_heartbeat(backend, "worker-b")
        await enqueue(backend, a_job(), a_job(), a_job())
        await claim(backend, 2)
        await claim(backend, 1, worker_id="worker-c")
        views = await backend.insight.workers()
        assert {view.heartbeat.worker_id: view.running for view in views} == {"worker-a": 2, "worker-b": 0}

    async def test_tasks_with_ready_jobs_are_listed_once_per_queue(self, backend: Backend) -> None:
        assert await backend.insight.waiting_tasks() == []
        await enqueue(backend, a_job(), a_job(), a_job("mail", task="send"), a_job(task="later", delay=LEASE))
        await backend.queues.pause("mail")
        assert await backend.insight.waiting_tasks() == [
            WaitingTask("default", "greet", paused=False),
            WaitingTask("mail", "send", paused=True),
        ]
        await claim(backend, MANY)
        assert [waiting.task for waiting in await backend.insight.waiting_tasks()] == ["send"]
