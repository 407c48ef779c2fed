"""The verbs for jobs, queues and lists over the rows of a store: written once for all stores.

A store adds the hot paths that depend on its layout: `enqueue_plain`, `claim`, and a shorter path for completions if it
has one.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.instants import to_micros
from holdfast.model.job import JobState, Lease, NewJob
from holdfast.model.job_facts import JobFacts
from holdfast.model.limits import Limit, LimitKey, LimitUse
from holdfast.store.job_lists import SeenJob
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import BecameReady, LockedTooLong, Runner, Verb, watched
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Count,
    Enqueued,
    Finish,
    JobDetails,
    JobFilter,
    JobGraph,
    JobPage,
    LeaseView,
    Outstanding,
    Promotion,
    QueueView,
    Rescued,
    Retention,
    Standing,
    TaskView,
    Verdict,
    WaitingTask,
    WorkerView,
)
from holdfast.store.verbs import children, explain, job_admin, job_graph, job_views, maintenance, queue_views
from holdfast.store.verbs import enqueue as enqueuing
from holdfast.store.verbs import finish as finishing
from holdfast.store.verbs import limits as limiting
from holdfast.store.verbs import rescue as rescuing

T = TypeVar("T")
SETTLED_TOGETHER = 1_000  # parents, and children, in one transaction
AT_ONCE = 10_000  # children that a verb decides on before it returns; the rest is left to `promote`


def _nothing() -> None:
    """Do nothing: in a transaction of the caller, jobs have not ended before it commits."""


class JobsOverRows(ABC):
    """`JobStore` without its hot paths. `ended` is called after a write by which jobs may have ended.

    Without `ended`, the verbs run in a transaction of the caller: what follows its commit is left to `promote`.
    """

    def __init__(self, runner: Runner, rows: JobRows, ended: Callable[[], None] | None = None) -> None:
        self._runner = runner
        self._rows = rows
        self._ended = ended or _nothing
        self._is_joined = ended is None

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:  # noqa: D102 - the port states the contracts
        if all(job.conditions is None for job in jobs):
            return await self.enqueue_plain(jobs)
        insert = await self.inserter(jobs)
        return await self._change(lambda: enqueuing.enqueue(self._rows, jobs, insert))

    @abstractmethod
    async def enqueue_plain(self, jobs: Sequence[NewJob]) -> list[bool]:
        """Enqueue jobs without conditions; return True for each that is new."""

    @abstractmethod
    async def inserter(self, jobs: Sequence[NewJob]) -> enqueuing.Insert:
        """Prepare the insertion of some of these jobs, inside a transaction."""

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> Claim: ...  # noqa: D102

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:  # noqa: D102
        if not finishes:
            return []
        if briefly and not (self._is_joined or self._runner.joins):
            try:
                verdicts = await self._change(lambda: finishing.finish(self._rows, finishes), briefly=True)
            except LockedTooLong:
                return await self._finish_reachable(finishes)
        else:
            verdicts = await self._change(lambda: finishing.finish(self._rows, finishes))
        self._ended()
        return verdicts

    async def _finish_reachable(self, finishes: Sequence[Finish]) -> list[Verdict]:
        """Write what can be written now, although another transaction stays open; DELAYED for the others."""
        try:
            verdicts = await self._change(lambda: finishing.finish_reachable(self._rows, finishes), briefly=True)
        except LockedTooLong:
            return [Verdict.DELAYED] * len(finishes)
        self._ended()
        return verdicts

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:  # noqa: D102
        return await self._change(lambda: rescuing.release(self._rows, leases, started=started))

    async def unacknowledged_leases(self, worker_id: str, after: int) -> list[Lease]:  # noqa: D102
        return await self._runner.look(lambda: job_views.unacknowledged_leases(self._rows, worker_id, after))

    async def promote(self, limit: int) -> Promotion:  # noqa: D102
        next_due, parents_changed = await self._runner.look(lambda: maintenance.next_due(self._rows))
        moved = await self._settle(limit) if parents_changed else 0
        if next_due is None or next_due > timedelta(0):
            return Promotion(moved, next_due)
        promotion = await self._runner.write(lambda: maintenance.promote(self._rows, limit))
        return Promotion(moved + promotion.moved, promotion.next_due)

    async def _change(self, verb: Verb[T], *, briefly: bool = False) -> T:
        """Run a verb by which jobs may end; if some have children, decide on these at once, in other transactions.

        Inside a handler's transaction these are left to its end: until then they would be locked, with children of
        other jobs.
        """
        if self._is_joined or self._runner.joins:
            return await self._runner.write(verb)
        seen: list[BecameReady] = []
        write = self._runner.write_briefly if briefly else self._runner.write
        answer = await write(watched(verb, seen))
        if seen:
            with contextlib.suppress(StoreUnavailable, OutcomeUnknown):  # the verb is done; `promote` does the rest
                await self._settle(AT_ONCE)
        return answer

    async def _settle(self, limit: int) -> int:
        """Release and cancel children until none is left to decide, or `limit` of them; return how many."""
        moved = 0
        while moved < limit:
            done = await self._runner.write(lambda: children.settle(self._rows, SETTLED_TOGETHER))
            moved += done.moved
            if not done.has_more:
                break
        if moved:
            self._ended()
        return moved

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:  # noqa: D102
        asked_at = time.monotonic()
        look = await self.prepare_rescue(unbroken)
        if not look.found:
            return []
        rescued = await self._change(lambda: rescuing.rescue(self._rows, unbroken, limit, asked_at=asked_at))
        if rescued:
            self._ended()
        with contextlib.suppress(StoreUnavailable, OutcomeUnknown):  # the next rescue does it
            await self.follow_rescue(look)
        return rescued

    async def prepare_rescue(self, unbroken: timedelta | None) -> rescuing.ExpiredLook:
        """Return, by a cheap read, whether there is an expired lease to take.

        Its duration counts as that of the rescue: if the store did not answer meanwhile, workers could not extend.
        """
        return await self._runner.look(lambda: rescuing.look_for_expired(self._rows, unbroken))

    async def follow_rescue(self, look: rescuing.ExpiredLook) -> None:  # noqa: B027 - few stores have anything to do
        """Do what would make a rescue late, for the benefit of the next one."""

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:  # noqa: D102
        rescued = await self._change(lambda: rescuing.rescue_worker(self._rows, worker_id, reason, limit))
        if rescued:
            self._ended()
        return rescued

    async def run(self, job_id: str) -> bool:  # noqa: D102
        return await self._change(lambda: job_admin.run(self._rows, job_id))

    async def reset(self, job_id: str) -> bool:  # noqa: D102
        return await self._change(lambda: job_admin.reset(self._rows, job_id))

    async def cancel(self, job_id: str, reason: str) -> Cancellation:  # noqa: D102
        cancellation = await self._change(lambda: job_admin.cancel(self._rows, job_id, reason))
        self._ended()
        return cancellation

    async def cancel_all(self, job_ids: Sequence[str], reason: str) -> dict[str, Cancellation]:  # noqa: D102
        cancellations = await self._change(lambda: job_admin.cancel_all(self._rows, job_ids, reason))
        self._ended()
        return cancellations

    async def delete(  # noqa: D102
        self, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
    ) -> dict[str, JobState | None]:
        return await self._runner.write(lambda: job_admin.delete(self._rows, job_ids, states, older_than))

    async def retry(self, job_id: str, *, ended_by: datetime | None = None) -> bool:  # noqa: D102
        latest = None if ended_by is None else to_micros(ended_by)
        return await self._change(lambda: job_admin.retry(self._rows, job_id, latest))

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:  # noqa: D102
        return await self._runner.once(lambda: maintenance.progress(self._rows, lease, percent, note))

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:  # noqa: D102
        return await self._runner.once(lambda: maintenance.extend(self._rows, lease, duration))

    async def verify(self, lease: Lease) -> Standing:  # noqa: D102
        return await self._runner.write(lambda: finishing.verify(self._rows, lease))

    async def prune(self, retention: Retention, limit: int) -> int:  # noqa: D102
        return await self._runner.write(lambda: maintenance.prune(self._rows, retention, limit))

    async def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:  # noqa: D102
        return await self._runner.look(lambda: queue_views.outstanding(self._rows, tasks, queues))


class QueuesOverRows:
    """`QueueStore`."""

    def __init__(self, runner: Runner, rows: JobRows) -> None:
        self._runner = runner
        self._rows = rows

    async def pause(self, queue: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("pause", queue=queue))

    async def resume(self, queue: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("resume", queue=queue))

    async def pause_task(self, task: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("pause_task", task=task))

    async def resume_task(self, task: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("resume_task", task=task))

    async def limit(self, key: LimitKey, limit: Limit | None) -> None:  # noqa: D102
        await self._runner.write(lambda: limiting.set_limit(self._rows, key, limit))
        await self._fill_keys([key])

    async def declare(self, limits: Mapping[LimitKey, Limit | None]) -> list[LimitKey]:  # noqa: D102
        changed = await self._runner.write(lambda: limiting.declare(self._rows, limits))
        await self._fill_keys(changed)
        return changed

    async def _fill_keys(self, changed: Sequence[LimitKey]) -> None:
        """Apply changed limits to the keys that exist, in short transactions; what fails here is left to `promote`."""
        if any(key.kind == "key" for key in changed):
            with contextlib.suppress(StoreUnavailable, OutcomeUnknown):
                while await self._runner.write(lambda: self._rows.fill_keys(SETTLED_TOGETHER)) >= SETTLED_TOGETHER:
                    pass


class InsightOverRows:
    """`Insight`; the verb `facts` depends on the store."""

    def __init__(self, runner: Runner, rows: JobRows, facts: Verb[dict[str, str]]) -> None:
        self._runner = runner
        self._rows = rows
        self._facts = facts

    async def job(self, job_id: str) -> JobDetails:  # noqa: D102
        return await self._runner.read(lambda: job_views.job(self._rows, job_id))

    async def job_facts(self, job_id: str) -> JobFacts:  # noqa: D102
        return await self._runner.read(lambda: explain.job_facts(self._rows, job_id))

    async def find(self, prefix: str, limit: int) -> list[str]:  # noqa: D102
        return await self._runner.look(lambda: job_views.find(self._rows, prefix, limit))

    async def states(self, job_ids: Sequence[str]) -> list[SeenJob]:  # noqa: D102
        return await self._runner.look(lambda: job_views.states(self._rows, job_ids))

    async def parents(self, seq: int) -> list[SeenJob]:  # noqa: D102
        return await self._runner.look(lambda: job_graph.parents(self._rows, seq))

    async def graph(self, job_id: str, limit: int) -> JobGraph:  # noqa: D102
        return await self._runner.read(lambda: job_graph.graph(self._rows, job_id, limit))

    async def jobs(self, selection: JobFilter) -> JobPage:  # noqa: D102
        return await self._runner.look(lambda: job_views.jobs(self._rows, selection))

    async def queues(self, most: int | None = None) -> list[QueueView]:  # noqa: D102
        return await self._runner.read(lambda: queue_views.queues(self._rows, most))

    async def tasks(self, most: int | None = None) -> list[TaskView]:  # noqa: D102
        return await self._runner.read(lambda: queue_views.tasks(self._rows, most))

    async def limits(self) -> list[LimitUse]:  # noqa: D102
        return await self._runner.look(lambda: limiting.limits(self._rows))

    async def depth(self, queue: str) -> int:  # noqa: D102
        return await self._runner.look(lambda: queue_views.depth(self._rows, queue))

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:  # noqa: D102
        return await self._runner.look(lambda: job_views.leases(self._rows, limit, expired_only=expired_only))

    async def workers(self) -> list[WorkerView]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.workers(self._rows))

    async def waiting_tasks(self) -> list[WaitingTask]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.waiting_tasks(self._rows))

    async def counts(self, since: timedelta, *, by_minute: bool = True) -> list[Count]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.counts(self._rows, since, by_minute=by_minute))

    async def facts(self) -> dict[str, str]:  # noqa: D102
        return await self._runner.look(self._facts)
