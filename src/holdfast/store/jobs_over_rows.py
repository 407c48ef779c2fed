"""The verbs for jobs, queues and lists over the rows of a store: written once for all stores.

A store adds the hot paths that depend on its layout: `enqueue`, `claim`, and a shorter path for completions if it has
one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from holdfast.model.job import JobState, Lease, NewJob
from holdfast.store.job_lists import SeenJob
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Runner, Verb
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Count,
    Finish,
    JobDetails,
    JobFilter,
    JobPage,
    LeaseView,
    Outstanding,
    Promotion,
    QueueView,
    Rescued,
    Retention,
    Standing,
    Verdict,
    WorkerView,
)
from holdfast.store.verbs import finish as finishing
from holdfast.store.verbs import job_admin, job_views, maintenance, queue_views
from holdfast.store.verbs import rescue as rescuing


def _nothing() -> None:
    """Do nothing: in a transaction of the caller, jobs have not ended before it commits."""


class JobsOverRows(ABC):
    """`JobStore` without its hot paths. `ended` is called after a write by which jobs may have ended."""

    def __init__(self, runner: Runner, rows: JobRows, ended: Callable[[], None] | None = None) -> None:
        self._runner = runner
        self._rows = rows
        self._ended = ended or _nothing

    @abstractmethod
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[bool]: ...  # noqa: D102 - the port states the contracts

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> Claim: ...  # noqa: D102

    async def finish(self, finishes: Sequence[Finish]) -> list[Verdict]:  # noqa: D102
        if not finishes:
            return []
        verdicts = await self._runner.write(lambda: finishing.finish(self._rows, finishes))
        self._ended()
        return verdicts

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:  # noqa: D102
        return await self._runner.write(lambda: rescuing.release(self._rows, leases, started=started))

    async def unacknowledged_leases(self, worker_id: str, after: int) -> list[Lease]:  # noqa: D102
        return await self._runner.look(lambda: job_views.unacknowledged_leases(self._rows, worker_id, after))

    async def promote(self, limit: int) -> Promotion:  # noqa: D102
        next_due = await self._runner.look(lambda: maintenance.next_due(self._rows))
        if next_due is None or next_due > timedelta(0):
            return Promotion(0, next_due)
        return await self._runner.write(lambda: maintenance.promote(self._rows, limit))

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:  # noqa: D102
        asked_at = time.monotonic()
        if not await self.prepare_rescue(unbroken):
            return []
        rescued = await self._runner.write(lambda: rescuing.rescue(self._rows, unbroken, limit, asked_at=asked_at))
        if rescued:
            self._ended()
        return rescued

    async def prepare_rescue(self, unbroken: timedelta | None) -> bool:
        """Return, by a cheap read, whether there is an expired lease to take."""
        return await self._runner.look(lambda: rescuing.any_expired(self._rows, unbroken))

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:  # noqa: D102
        rescued = await self._runner.write(lambda: rescuing.rescue_worker(self._rows, worker_id, reason, limit))
        if rescued:
            self._ended()
        return rescued

    async def reset(self, job_id: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: job_admin.reset(self._rows, job_id))

    async def cancel(self, job_id: str, reason: str) -> Cancellation:  # noqa: D102
        cancellation = await self._runner.write(lambda: job_admin.cancel(self._rows, job_id, reason))
        self._ended()
        return cancellation

    async def cancel_all(self, job_ids: Sequence[str], reason: str) -> dict[str, Cancellation]:  # noqa: D102
        cancellations = await self._runner.write(lambda: job_admin.cancel_all(self._rows, job_ids, reason))
        self._ended()
        return cancellations

    async def delete(  # noqa: D102
        self, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
    ) -> dict[str, JobState | None]:
        return await self._runner.write(lambda: job_admin.delete(self._rows, job_ids, states, older_than))

    async def retry(self, job_id: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: job_admin.retry(self._rows, job_id))

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

    async def result(self, job_id: str) -> str | None:  # noqa: D102
        return await self._runner.look(lambda: job_views.result(self._rows, job_id))


class QueuesOverRows:
    """`QueueStore`."""

    def __init__(self, runner: Runner, rows: JobRows) -> None:
        self._runner = runner
        self._rows = rows

    async def pause(self, queue: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("pause", queue=queue))

    async def resume(self, queue: str) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.act("resume", queue=queue))


class InsightOverRows:
    """`Insight`; the verb `facts` depends on the store."""

    def __init__(self, runner: Runner, rows: JobRows, facts: Verb[dict[str, str]]) -> None:
        self._runner = runner
        self._rows = rows
        self._facts = facts

    async def job(self, job_id: str) -> JobDetails:  # noqa: D102
        return await self._runner.read(lambda: job_views.job(self._rows, job_id))

    async def find(self, prefix: str, limit: int) -> list[str]:  # noqa: D102
        return await self._runner.look(lambda: job_views.find(self._rows, prefix, limit))

    async def states(self, job_ids: Sequence[str]) -> list[SeenJob]:  # noqa: D102
        return await self._runner.look(lambda: job_views.states(self._rows, job_ids))

    async def jobs(self, selection: JobFilter) -> JobPage:  # noqa: D102
        return await self._runner.look(lambda: job_views.jobs(self._rows, selection))

    async def queues(self) -> list[QueueView]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.queues(self._rows))

    async def depth(self, queue: str) -> int:  # noqa: D102
        return await self._runner.look(lambda: queue_views.depth(self._rows, queue))

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:  # noqa: D102
        return await self._runner.look(lambda: job_views.leases(self._rows, limit, expired_only=expired_only))

    async def workers(self) -> list[WorkerView]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.workers(self._rows))

    async def counts(self, since: timedelta, *, by_minute: bool = True) -> list[Count]:  # noqa: D102
        return await self._runner.look(lambda: queue_views.counts(self._rows, since, by_minute=by_minute))

    async def facts(self) -> dict[str, str]:  # noqa: D102
        return await self._runner.look(self._facts)
