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
from tests.stateful.drawn import (
    ALL,
    ALWAYS,
    LIMITED,
    QUEUES,
    TASKS,
    TICK,
    WORKERS,
    durations,
    new_jobs,
    outcomes,
    some_limits,
    some_queues,
    some_tasks,
)
from tests.stateful.seen import counted, in_use, seen, told

from holdfast.errors import JobNotFound, UniqueConflict
from holdfast.model.conditions import Conditions, UniqueScope
from holdfast.model.job import JobState, Lease, NewJob, parents_of
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Outcome
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, Outstanding, QueueView, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.reference import Reference, ReferenceBackend, views
from holdfast.testing.stores import open_store

T = TypeVar("T")


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
        for key, limit in ALWAYS.items():
            self.limit(key, limit)

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

    def both_answer(self, verb: str, *arguments: object) -> Any:
        """Return what a verb answers on both, or the error that it raises on both."""
        try:
            expected = getattr(self.model, verb)(*arguments)
        except (JobNotFound, UniqueConflict) as error:
            expected = type(error), getattr(error, "job_id", None)
        try:
            answer = self.run(getattr(self.store.jobs, verb)(*arguments))
        except (JobNotFound, UniqueConflict) as error:
            answer = type(error), getattr(error, "job_id", None)
        assert answer == expected
        return answer

    # -- what a producer does

    @rule(batch=st.lists(new_jobs, min_size=1, max_size=4), data=st.data())
    def enqueue(self, batch: list[dict[str, Any]], data: st.DataObject) -> None:
        jobs: list[NewJob] = []
        for fields in batch:
            repeated = bool(self.ids) and data.draw(st.integers(0, 4), label="repeat") == 0
            job_id = self.job_id(data) if repeated else self.new_id()
            jobs.append(NewJob(id=job_id, **fields))
        if any(job.conditions is not None for job in jobs):
            jobs = list({job.id: job for job in jobs}.values())  # such a call is refused
        self.both_answer("enqueue", jobs)
        self.ids = list(dict.fromkeys(self.ids + [job.id for job in jobs]))

    @precondition(lambda self: self.ids)
    @rule(batch=st.lists(new_jobs, min_size=1, max_size=4), data=st.data())
    def enqueue_children(self, batch: list[dict[str, Any]], data: st.DataObject) -> None:
        new = [self.new_id() for _ in batch]
        jobs: list[NewJob] = []
        for fields, job_id in zip(batch, new, strict=True):
            earlier = self.ids + new[: new.index(job_id)]
            parents = data.draw(st.lists(st.sampled_from(earlier), max_size=3), label="parents")
            run_anyway = data.draw(st.booleans(), label="run anyway")
            # Without a unique key if it may be a parent in this call: then its children wait for the job that is kept.
            unique = fields["conditions"] and fields["conditions"].unique if job_id == new[-1] else None
            after = Conditions(unique=unique, after=tuple(parents), run_anyway=run_anyway)
            conditions = after if parents or unique else None
            jobs.append(NewJob(id=job_id, **{**fields, "conditions": conditions}))
        if self.both_answer("enqueue", data.draw(st.permutations(jobs), label="order")) != (JobNotFound, None):
            self.ids += new

    # -- what a worker does

    @rule(
        worker=st.sampled_from(WORKERS),
        limit=st.integers(1, 4),
        queues=some_queues,
        tasks=some_tasks,
        lease=durations,
        isolates=st.booleans(),
        slots=st.sampled_from([None, None, 0, 1]),
    )
    def claim(
        self,
        worker: str,
        limit: int,
        queues: tuple[str, ...] | None,
        tasks: tuple[str, ...],
        lease: timedelta,
        isolates: bool,
        slots: int | None,
    ) -> None:
        request = ClaimRequest(
            worker_id=worker, tasks=tasks, limit=limit, lease=lease, queues=queues, isolates=isolates, slots=slots
        )
        answer, expected = self.run(self.store.jobs.claim(request)), self.model.claim_within_limits(request)
        real, model = answer.jobs, expected.jobs
        assert answer.is_limited == expected.is_limited or len(real) == limit
        assert [told(job) for job in real] == [told(job) for job in model]
        assert {job.id for job in real if job.seq in answer.limited} == {
            job.id for job in model if job.seq in expected.limited
        }
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

    # -- maintenance

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
    @rule(data=st.data(), verb=st.sampled_from(["reset", "retry", "run", "cancel"]))
    def by_a_persons_word(self, data: st.DataObject, verb: str) -> None:
        job_id = self.job_id(data)
        self.both_answer(verb, *((job_id, "not wanted") if verb == "cancel" else (job_id,)))

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

    @rule(task=st.sampled_from(TASKS))
    def pause_task(self, task: str) -> None:
        assert self.run(self.store.queues.pause_task(task)) == self.model.pause_task(task)

    @rule(task=st.sampled_from(TASKS))
    def resume_task(self, task: str) -> None:
        assert self.run(self.store.queues.resume_task(task)) == self.model.resume_task(task)

    @rule(key=st.sampled_from(LIMITED), limit=some_limits)
    def limit(self, key: LimitKey, limit: Limit | None) -> None:
        self.run(self.store.queues.limit(key, limit))
        self.model.limit(key, limit)

    # -- after every step

    @invariant()
    def of_each_line_one_job_is_outside_blocked(self) -> None:
        by_order_key: dict[tuple[str, str], list[JobState]] = {}
        for record in self.model.records.values():
            if record.order_scope is not None and not record.is_final and not record.waits:
                by_order_key.setdefault(record.order_scope, []).append(record.state)
        for states in by_order_key.values():
            assert sum(state is not JobState.BLOCKED for state in states) == 1

    @invariant()
    def of_each_limit_key_no_more_jobs_are_ready_or_running_than_its_limit_allows(self) -> None:
        for key, limit in ALWAYS.items():
            admitted = [
                record.limit_scope
                for record in self.model.records.values()
                if record.new.task == key.name and record.state in {JobState.READY, JobState.RUNNING}
            ]
            assert all(admitted.count(scope) <= (limit.running or 0) for scope in set(admitted) - {None})

    @invariant()
    def a_child_starts_only_after_the_end_of_all_its_parents(self) -> None:
        for record in self.model.records.values():
            if record.waits:
                assert record.state is JobState.BLOCKED
                assert not all(self.model.records[parent_id].is_final for parent_id in parents_of(record.new))

    @invariant()
    def no_two_unfinished_jobs_have_one_unique_key(self) -> None:
        """Of jobs that hold their keys until they are finished; others may take such a key in other scopes."""
        unfinished: dict[tuple[str, str], set[UniqueScope]] = {}
        for record in self.model.records.values():
            if record.unique is not None and not record.is_final:
                scopes = unfinished.setdefault((record.new.task, record.unique.key), set())
                assert UniqueScope.UNFINISHED not in scopes or record.unique.scope is not UniqueScope.UNFINISHED
                scopes.add(record.unique.scope)

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
        assert in_use(self.run(self.store.insight.tasks())) == in_use(views.tasks(self.model))
        assert sorted(self.run(self.store.insight.limits())) == sorted(self.model.limit_uses())
        assert real[1:] == (self.model.outstanding(TASKS, None), self.model.outstanding(TASKS[:1], QUEUES[:1]))

    async def _counts(self) -> tuple[list[QueueView], Outstanding, Outstanding]:
        return (
            sorted(await self.store.insight.queues(), key=lambda view: view.name),
            await self.store.jobs.outstanding(TASKS, None),
            await self.store.jobs.outstanding(TASKS[:1], QUEUES[:1]),
        )


__all__ = ["StoreMachine"]
