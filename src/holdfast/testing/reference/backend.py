"""The reference model behind the port, so that it passes the same conformance suite as the stores."""

# ruff: noqa: D102 - the port states the contract of every method here

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import NoReturn

from holdfast.errors import Unsupported
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.ids import short_id
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import JobState, Lease, NewJob
from holdfast.model.job_facts import JobFacts
from holdfast.model.limits import Limit, LimitKey, LimitUse
from holdfast.store.backend import Transaction
from holdfast.store.capabilities import QUEUE_EFFECTS, Capabilities
from holdfast.store.job_lists import SeenJob
from holdfast.store.jobs import JobStore
from holdfast.store.local_notifier import LocalNotifier
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Count,
    Enqueued,
    Extension,
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
    WorkerHeartbeat,
    WorkerView,
)
from holdfast.testing.reference import views
from holdfast.testing.reference.explain import job_facts, waiting_tasks
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.schedules import ReferenceSchedules
from holdfast.testing.reference.stored_records import ReferenceRecords
from holdfast.testing.reference.streams import ReferenceStreams, StreamReference

_NO_TRANSACTIONS = "the reference model is not a database; it has no place for an effect"
_NOT_SHARED = "the reference model exists in one process"


class ReferenceBackend:
    """A `Backend` over a `Reference` and, on the same clock, a `StreamReference`."""

    def __init__(self, model: Reference, streams: StreamReference | None = None) -> None:
        self.model = model
        self.url = "reference:"
        self.full_url = None
        self.file = None
        self.capabilities = Capabilities(
            store="reference",
            version="1",
            durability="none: in memory",
            notifies=False,
            joins_transactions=False,
            shared=False,
            refusals={"join transactions": _NO_TRANSACTIONS, QUEUE_EFFECTS: _NO_TRANSACTIONS, "be shared": _NOT_SHARED},
        )
        self.jobs = ReferenceJobs(model)
        self.streams = ReferenceStreams(StreamReference(model.clock) if streams is None else streams)
        self.queues = ReferenceQueues(model)
        self.schedules = ReferenceSchedules(model)
        self.records = ReferenceRecords(model)
        self.insight = ReferenceInsight(model)
        self.schema = ReferenceSchema()
        self.transactions = ReferenceTransactions()
        self.notifier = LocalNotifier("reference", None)

    async def open(self, *, install: bool = True) -> None:
        """Do nothing: the model is always open."""

    async def close(self) -> None:
        """Do nothing: the model holds no resources."""

    def extender(self) -> ReferenceExtender:
        """Return the blocking verbs."""
        return ReferenceExtender(self.model, self.streams.model)


class ReferenceJobs:
    """`JobStore` over the model."""

    def __init__(self, model: Reference) -> None:
        self._model = model

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._model.enqueue(jobs)

    async def claim(self, request: ClaimRequest) -> Claim:
        return self._model.claim_within_limits(request)

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:  # noqa: ARG002
        return self._model.finish(finishes)

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        return self._model.release(leases, started=started)

    async def unacknowledged_leases(self, worker_id: str, after: int) -> list[Lease]:
        return self._model.unacknowledged_leases(worker_id, after)

    async def promote(self, limit: int) -> Promotion:
        return self._model.promote(limit)

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:
        return self._model.rescue(unbroken, limit)

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:
        return self._model.rescue_worker(worker_id, reason, limit)

    async def run(self, job_id: str) -> bool:
        return self._model.run(job_id)

    async def reset(self, job_id: str) -> bool:
        return self._model.reset(job_id)

    async def cancel(self, job_id: str, reason: str) -> Cancellation:
        return self._model.cancel(job_id, reason)

    async def cancel_all(self, job_ids: Sequence[str], reason: str) -> dict[str, Cancellation]:
        return self._model.cancel_all(job_ids, reason)

    async def delete(
        self, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
    ) -> dict[str, JobState | None]:
        return self._model.delete(job_ids, states, older_than)

    async def retry(self, job_id: str, *, ended_by: datetime | None = None) -> bool:
        return self._model.retry(job_id, ended_by)

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:
        return self._model.progress(lease, percent, note)

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:
        return self._model.extend(lease, duration)

    async def verify(self, lease: Lease) -> Standing:
        return self._model.verify(lease)

    async def prune(self, retention: Retention, limit: int) -> int:
        return self._model.prune(retention, limit)

    async def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:
        return self._model.outstanding(tasks, queues)


class ReferenceExtender:
    """`Extender` over the model."""

    def __init__(self, model: Reference, streams: StreamReference) -> None:
        self._model = model
        self._streams = streams

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        return self._model.extend_all(leases, duration)

    def cancel_asked(self, worker_id: str) -> list[Lease]:
        return self._model.cancel_asked(worker_id)

    def heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._model.heartbeat(heartbeat)

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:
        return self._streams.heartbeat(node, timing)

    def owned(self, node: NodeKey) -> OwnedShares:
        return self._streams.owned(node)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class ReferenceQueues:
    """`QueueStore` over the model."""

    def __init__(self, model: Reference) -> None:
        self._model = model

    async def pause(self, queue: str) -> bool:
        return self._model.pause(queue)

    async def resume(self, queue: str) -> bool:
        return self._model.resume(queue)

    async def pause_task(self, task: str) -> bool:
        return self._model.pause_task(task)

    async def resume_task(self, task: str) -> bool:
        return self._model.resume_task(task)

    async def limit(self, key: LimitKey, limit: Limit | None) -> None:
        self._model.limit(key, limit)

    async def declare(self, limits: Mapping[LimitKey, Limit | None]) -> list[LimitKey]:
        return self._model.declare(limits)


class ReferenceInsight:
    """`Insight` over the model."""

    def __init__(self, model: Reference) -> None:
        self._model = model

    async def job(self, job_id: str) -> JobDetails:
        return views.details(self._model, job_id)

    async def job_facts(self, job_id: str) -> JobFacts:
        return job_facts(self._model, job_id)

    async def find(self, prefix: str, limit: int) -> list[str]:
        records = self._model.records
        found = (each for each in records if each.startswith(prefix) or short_id(records[each].seq, each) == prefix)
        return sorted(found)[:limit]

    async def states(self, job_ids: Sequence[str]) -> list[SeenJob]:
        records = [record for job_id in job_ids if (record := self._model.records.get(job_id)) is not None]
        return [SeenJob(record.new.id, record.state, record.result, record.seq) for record in records]

    async def parents(self, seq: int) -> list[SeenJob]:
        return views.parents(self._model, seq)

    async def graph(self, job_id: str, limit: int) -> JobGraph:
        return views.graph(self._model, job_id, limit)

    async def jobs(self, selection: JobFilter) -> JobPage:
        return views.jobs(self._model, selection)

    async def queues(self, most: int | None = None) -> list[QueueView]:
        found = views.queues(self._model)
        return found if most is None else views.counted_up_to(most, found)

    async def tasks(self, most: int | None = None) -> list[TaskView]:
        found = views.tasks(self._model)
        return found if most is None else views.counted_up_to(most, found)

    async def limits(self) -> list[LimitUse]:
        return self._model.limit_uses()

    async def depth(self, queue: str) -> int:
        return views.depth(self._model, queue)

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:
        return views.leases(self._model, limit, expired_only=expired_only)

    async def workers(self) -> list[WorkerView]:
        return views.workers(self._model)

    async def waiting_tasks(self) -> list[WaitingTask]:
        return waiting_tasks(self._model)

    async def counts(self, since: timedelta, *, by_minute: bool = True) -> list[Count]:
        found = views.counts(self._model, since)
        return found if by_minute else views.summed(found)

    async def facts(self) -> dict[str, str]:
        return {"store": "reference", "jobs": str(len(self._model.records)), "now_us": str(self._model.now)}


class ReferenceSchema:
    """`Schema` of a store without tables."""

    async def open(self, *, install: bool = True) -> None:
        """Do nothing: there are no tables to install."""

    async def install(self, *, only_existing: bool = False) -> int:  # noqa: ARG002 - it always exists
        return 1

    async def check(self) -> int:
        return 1

    def script(self) -> str:
        return "-- the reference model has no tables\n"


class ReferenceTransactions:
    """`Transactions`; every method raises `Unsupported`."""

    def begin(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        self._refuse(lease, limit, isolation)

    def begin_blocking(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        self._refuse(lease, limit, isolation)

    def begin_many(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        self._refuse(leases, limit, isolation)

    def begin_many_blocking(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        self._refuse(leases, limit, isolation)

    def is_inside(self) -> bool:
        return False

    def join(self, using: object) -> JobStore:
        self._refuse(using)

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:
        self._refuse(lease, result, using)

    def _refuse(self, *_: object) -> NoReturn:
        raise Unsupported(_NO_TRANSACTIONS)
