"""The rules: each verb is called on the store and on the reference model, and both must answer the same.

A handle is a pair, the store's lease and the model's: fences and seqs are the store's own affair, as long as they grow.
Handles are kept for ever, and live and stale ones are drawn equally often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import JobNotFound
from holdfast.model.job import JobState, Lease, LeasedJob, NewJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, Outstanding, QueueView, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference import Reference, ReferenceBackend, views
from holdfast.testing.stores import open_store

T = TypeVar("T")
QUEUES = ("mail", "sale")
TASKS = ("greet", "charge")
WORKERS = ("worker-a", "worker-b")
KEYS = ("x", "y")
ALL = 10_000
FAILURE = Failure(error_class="ValueError", message="no")
TICK = timedelta(microseconds=1)

seconds = st.sampled_from([0, 1, 10, 60, 3600]).map(lambda n: timedelta(seconds=n))
durations = st.sampled_from([5, 30, 120]).map(lambda n: timedelta(seconds=n))
some_queues = st.sampled_from([None, QUEUES, QUEUES[:1], QUEUES[1:]])
some_tasks = st.sampled_from([TASKS, TASKS[:1]])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from([Completed(), Completed('"x"'), Failed(FAILURE), Cancelled("no"), Lost(FAILURE)]),
    st.builds(Retried, seconds, st.just(FAILURE)),
    st.builds(Snoozed, seconds),
)
new_jobs = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "task": st.sampled_from(TASKS),
        "priority": st.integers(-2, 2),
        "max_attempts": st.integers(1, 3),
        "delay": st.none() | seconds,
        "order_key": st.none() | st.sampled_from(KEYS),
    }
)


class Handle(NamedTuple):
    """One lease, as the store and as the model know it."""

    real: Lease
    model: Lease


class StoreMachine(RuleBasedStateMachine):
    """Runs the store behind `url` beside the reference model, each example in an event loop of its own."""

    def url(self) -> str:
        """Return the URL of an empty store; asked for once in each example."""
        return "reference:"

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Reference(self.clock)
        self.ids: list[str] = []
        self.handles: list[Handle] = []
        self.fence = 0
        self.last_id = 0
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self) -> Backend:
        url = self.url()
        if url == "reference:":
            return ReferenceBackend(Reference(self.clock))
        return await self.stack.enter_async_context(open_store(url, clock=self.clock))

    @initialize()
    def start(self) -> None:
        self.store = self.run(self.open())

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    def handle(self, data: st.DataObject) -> Handle:
        """Draw whether the handle is to be live or stale, then which; whichever there is if only one sort exists."""
        live = [handle for handle in self.handles if self.model.of_lease(handle.model)]
        stale = [handle for handle in self.handles if not self.model.of_lease(handle.model)]
        first, other = (live, stale) if data.draw(st.booleans(), label="live") else (stale, live)
        return data.draw(st.sampled_from(first or other), label="handle")

    def some_handles(self, data: st.DataObject) -> list[Handle]:
        handles = [self.handle(data) for _ in range(data.draw(st.integers(1, 4), label="count"))]
        return list(dict.fromkeys(handles))

    def new_id(self) -> str:
        """Return ids in order and the same in every run, so that an example can be replayed."""
        self.last_id += 1
        return f"00000000-0000-7000-8000-{self.last_id:012x}"

    def job_id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.ids), label="job")

    # -- what a producer does

    @rule(batch=st.lists(new_jobs, min_size=1, max_size=4), data=st.data())
    def enqueue(self, batch: list[dict[str, Any]], data: st.DataObject) -> None:
        jobs: list[NewJob] = []
        for fields in batch:
            repeated = bool(self.ids) and data.draw(st.integers(0, 4), label="repeat") == 0
            job_id = self.job_id(data) if repeated else self.new_id()
            jobs.append(NewJob(id=job_id, payload="{}", **fields))
        assert self.run(self.store.jobs.enqueue(jobs)) == self.model.enqueue(jobs)
        self.ids = list(dict.fromkeys(self.ids + [job.id for job in jobs]))

    # -- what a worker does

    @rule(
        worker=st.sampled_from(WORKERS),
        limit=st.integers(1, 4),
        queues=some_queues,
        tasks=some_tasks,
        lease=durations,
        isolates=st.booleans(),
    )
    def claim(
        self,
        worker: str,
        limit: int,
        queues: tuple[str, ...] | None,
        tasks: tuple[str, ...],
        lease: timedelta,
        isolates: bool,
    ) -> None:
        request = ClaimRequest(
            worker_id=worker, tasks=tasks, limit=limit, lease=lease, queues=queues, isolates=isolates
        )
        real = self.run(self.store.jobs.claim(request)).jobs
        model = self.model.claim(request)
        assert [told(job) for job in real] == [told(job) for job in model]
        if real:
            (fence,) = {job.fence for job in real}
            assert fence > self.fence
            self.fence = fence
        self.handles += [Handle(mine.lease, other.lease) for mine, other in zip(real, model, strict=True)]

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        drawn = [(handle, data.draw(outcomes, label="outcome")) for handle in self.some_handles(data)]
        self._finish(drawn)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), outcome=outcomes)
    def finish_twice(self, data: st.DataObject, outcome: Outcome) -> None:
        drawn = [(self.handle(data), outcome)]
        self._finish(drawn)
        self._finish(drawn)

    def _finish(self, drawn: list[tuple[Handle, Outcome]]) -> None:
        real = self.run(self.store.jobs.finish([Finish(handle.real, outcome) for handle, outcome in drawn]))
        assert real == self.model.finish([Finish(handle.model, outcome) for handle, outcome in drawn])

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), started=st.booleans())
    def release(self, data: st.DataObject, started: bool) -> None:
        handles = self.some_handles(data)
        real = self.run(self.store.jobs.release([handle.real for handle in handles], started=started))
        assert real == self.model.release([handle.model for handle in handles], started=started)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), duration=durations)
    def extend(self, data: st.DataObject, duration: timedelta) -> None:
        handle = self.handle(data)
        assert self.run(self.store.jobs.extend(handle.real, duration)) is self.model.extend(handle.model, duration)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), duration=durations)
    def extend_all(self, data: st.DataObject, duration: timedelta) -> None:
        handles = self.some_handles(data)
        extender = self.store.extender()
        try:
            real = extender.extend([handle.real for handle in handles], duration)
        finally:
            extender.close()
        model = self.model.extend_all([handle.model for handle in handles], duration)
        assert {lease.job_id for lease in real.lost} == {lease.job_id for lease in model.lost}
        assert {lease.job_id for lease in real.cancel_asked} == {lease.job_id for lease in model.cancel_asked}
        assert (real.skipped, model.skipped) == ([], [])

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), percent=st.none() | st.sampled_from([0.0, 50.0]), note=st.none() | st.just("half"))
    def progress(self, data: st.DataObject, percent: float | None, note: str | None) -> None:
        handle = self.handle(data)
        real = self.run(self.store.jobs.progress(handle.real, percent, note))
        assert real is self.model.progress(handle.model, percent, note)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        handle = self.handle(data)
        assert self.run(self.store.jobs.verify(handle.real)) is self.model.verify(handle.model)

    # -- upkeep

    @rule(span=st.sampled_from([0, 1, 4, 20, 61, 3601]))
    def advance(self, span: int) -> None:
        self.clock.advance(timedelta(seconds=span) + TICK)

    @rule()
    def promote(self) -> None:
        assert self.run(self.store.jobs.promote(ALL)) == self.model.promote(ALL)

    @rule(unbroken=st.none() | st.sampled_from([0, 3, 15, 60]).map(lambda n: timedelta(seconds=n)))
    def rescue(self, unbroken: timedelta | None) -> None:
        real = self.run(self.store.jobs.rescue(unbroken, ALL))
        model = self.model.rescue(unbroken, ALL)
        assert sorted(real, key=lambda each: each.job_id) == sorted(model, key=lambda each: each.job_id)

    @rule(worker=st.sampled_from(WORKERS))
    def rescue_worker(self, worker: str) -> None:
        real = self.run(self.store.jobs.rescue_worker(worker, "killed", ALL))
        model = self.model.rescue_worker(worker, "killed", ALL)
        assert sorted(real, key=lambda each: each.job_id) == sorted(model, key=lambda each: each.job_id)

    @rule(kept=st.sampled_from([None, timedelta(0), timedelta(seconds=30), timedelta(hours=2)]))
    def prune(self, kept: timedelta | None) -> None:
        retention = Retention(completed=kept, failed=kept, cancelled=kept)
        assert self.run(self.store.jobs.prune(retention, ALL)) == self.model.prune(retention, ALL)

    # -- a person's word

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), verb=st.sampled_from(["reset", "retry", "cancel"]))
    def by_a_persons_word(self, data: st.DataObject, verb: str) -> None:
        job_id = self.job_id(data)
        arguments = (job_id, "not wanted") if verb == "cancel" else (job_id,)
        try:
            expected = getattr(self.model, verb)(*arguments)
        except JobNotFound:
            expected = JobNotFound
        try:
            answer = self.run(getattr(self.store.jobs, verb)(*arguments))
        except JobNotFound:
            answer = JobNotFound
        assert answer == expected

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel_all(self, data: st.DataObject) -> None:
        ids = [self.job_id(data) for _ in range(data.draw(st.integers(1, 4)))]
        assert self.run(self.store.jobs.cancel_all(ids, "not wanted")) == self.model.cancel_all(ids, "not wanted")

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), kept=st.sampled_from([timedelta(0), timedelta(seconds=30)]))
    def delete(self, data: st.DataObject, kept: timedelta) -> None:
        ids = [self.job_id(data) for _ in range(data.draw(st.integers(1, 4)))]
        states = data.draw(st.sets(st.sampled_from(JobState)))
        assert self.run(self.store.jobs.delete(ids, states, kept)) == self.model.delete(ids, states, kept)

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        assert self.run(self.store.queues.pause(queue)) == self.model.pause(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        assert self.run(self.store.queues.resume(queue)) == self.model.resume(queue)

    # -- after every step

    @invariant()
    def of_each_line_one_job_is_outside_blocked(self) -> None:
        by_order_key: dict[tuple[str, str], list[JobState]] = {}
        for record in self.model.records.values():
            if record.order_scope is not None and not record.is_final:
                by_order_key.setdefault(record.order_scope, []).append(record.state)
        for states in by_order_key.values():
            assert sum(state is not JobState.BLOCKED for state in states) == 1

    @invariant()
    def every_job_stands_where_the_model_says(self) -> None:
        if hasattr(self, "store"):
            assert self.run(self._look()) == [self._expected(job_id) for job_id in self.ids]

    async def _look(self) -> list[tuple[Any, ...] | None]:
        return [await self._look_at(job_id) for job_id in self.ids]

    async def _look_at(self, job_id: str) -> tuple[Any, ...] | None:
        try:
            details = await self.store.insight.job(job_id)
        except JobNotFound:
            return None
        return seen(details)

    def _expected(self, job_id: str) -> tuple[Any, ...] | None:
        return seen(views.details(self.model, job_id)) if job_id in self.model.records else None

    @invariant()
    def the_counts_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        real, expected = self.run(self._counts()), views.queues(self.model)
        assert [view for view in map(counted, real[0]) if any(view[1:])] == [
            view for view in map(counted, expected) if any(view[1:])
        ]
        assert real[1:] == (self.model.outstanding(TASKS, None), self.model.outstanding(TASKS[:1], QUEUES[:1]))

    async def _counts(self) -> tuple[list[QueueView], Outstanding, Outstanding]:
        return (
            sorted(await self.store.insight.queues(), key=lambda view: view.name),
            await self.store.jobs.outstanding(TASKS, None),
            await self.store.jobs.outstanding(TASKS[:1], QUEUES[:1]),
        )


def told(job: LeasedJob) -> tuple[Any, ...]:
    """Return what a claim tells of a job, but for seq and fence."""
    return (
        job.id,
        job.queue,
        job.task,
        job.priority,
        job.max_attempts,
        job.turn,
        job.enqueued_at,
        job.attempt,
        job.excused,
        job.interrupted,
        job.lost,
        job.order_key,
    )


def seen(details: Any) -> tuple[Any, ...]:
    """Return what is compared of a job after every step."""
    job, lease = details.job, details.lease
    held = lease and (
        lease.worker_id,
        lease.expires_in,
        lease.isolated,
        lease.cancel_asked,
        lease.percent,
        lease.note,
        lease.started_at,
    )
    waits = job.state in {JobState.READY, JobState.SCHEDULED, JobState.BLOCKED}
    due = job.run_at if waits else None
    stands = (job.id, job.state, job.order_key, job.attempt, due, job.finished_at)
    return (*stands, details.result, held, len(details.attempts))


def counted(view: QueueView) -> tuple[Any, ...]:
    """Return a queue's counts."""
    return (view.name, view.paused, view.ready, view.scheduled, view.blocked, view.running, view.failed)


__all__ = ["StoreMachine"]
