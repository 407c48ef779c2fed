"""The backend of a store, over the parts that each process opens for itself: written once for all stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from holdfast.concurrency.per_process import PerProcess
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import Lease
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Notifier, QueueStore, Schema, Transaction
from holdfast.store.consumers import ConsumerStore
from holdfast.store.events import EventStore
from holdfast.store.fences import HandlersTransactions
from holdfast.store.foreign_events import ForeignEvents
from holdfast.store.handler_transaction import is_inside
from holdfast.store.insight import Insight
from holdfast.store.job_rows import JobRows
from holdfast.store.jobs import JobStore
from holdfast.store.records import RecordStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.steps import Runner, Steps
from holdfast.store.streams import Streams
from holdfast.store.values import Verdict
from holdfast.store.verbs.finish import complete

T = TypeVar("T")


@dataclass(frozen=True)
class StreamParts:
    """`Streams`. `joined` returns the verbs for events bound to a caller's connection."""

    events: EventStore
    consumers: ConsumerStore
    allocations: AllocationStore
    foreign: ForeignEvents
    joined: Callable[[object], EventStore]

    def join(self, using: object) -> EventStore:  # noqa: D102 - the port states the contracts
        return self.joined(using)


class CallersConnections(Protocol):
    """The connections that callers pass: runs verbs in their open transactions."""

    def runner(self, using: object) -> Runner: ...  # noqa: D102

    def run_blocking(self, using: object, steps: Steps[T]) -> T: ...  # noqa: D102


class StoreParts(ABC):
    """The connections of one process and the verbs over them; `owner` identifies its handlers' transactions."""

    jobs: JobStore
    streams: Streams
    queues: QueueStore
    schedules: ScheduleStore
    records: RecordStore
    insight: Insight
    schema: Schema
    notifier: Notifier
    transactions: HandlersTransactions
    callers: CallersConnections
    rows: JobRows
    owner: object

    @abstractmethod
    def jobs_over(self, runner: Runner) -> JobStore:
        """Return the verbs for jobs over a caller's transaction."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything."""


Parts = TypeVar("Parts", bound=StoreParts)


class BackendOverParts(Generic[Parts]):
    """`Backend` and `Transactions`, except `capabilities` and `extender`."""

    def __init__(self, url: str, full_url: str | None, open_parts: Callable[[], Parts]) -> None:
        self.url = url
        self.full_url = full_url
        self.file: Path | None = None
        self._parts = PerProcess(open_parts)

    @property
    def jobs(self) -> JobStore:  # noqa: D102 - the port states the contracts
        return self._parts.here.jobs

    @property
    def streams(self) -> Streams:  # noqa: D102
        return self._parts.here.streams

    @property
    def queues(self) -> QueueStore:  # noqa: D102
        return self._parts.here.queues

    @property
    def schedules(self) -> ScheduleStore:  # noqa: D102
        return self._parts.here.schedules

    @property
    def records(self) -> RecordStore:  # noqa: D102
        return self._parts.here.records

    @property
    def insight(self) -> Insight:  # noqa: D102
        return self._parts.here.insight

    @property
    def schema(self) -> Schema:  # noqa: D102
        return self._parts.here.schema

    @property
    def notifier(self) -> Notifier:  # noqa: D102
        return self._parts.here.notifier

    @property
    def transactions(self) -> Self:  # noqa: D102
        return self

    async def open(self, *, install: bool = True) -> None:  # noqa: D102
        await self.schema.open(install=install)

    async def close(self) -> None:  # noqa: D102
        parts = self._parts.take()
        if parts is not None:
            await parts.close()

    def begin(  # noqa: D102
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        return self._parts.here.transactions.begin(lease, limit=limit, isolation=isolation)

    def begin_blocking(  # noqa: D102
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        return self._parts.here.transactions.begin_blocking(lease, limit=limit, isolation=isolation)

    def begin_many(  # noqa: D102
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        return self._parts.here.transactions.begin_many(leases, limit=limit, isolation=isolation)

    def begin_many_blocking(  # noqa: D102
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        return self._parts.here.transactions.begin_many_blocking(leases, limit=limit, isolation=isolation)

    def is_inside(self) -> bool:  # noqa: D102
        return is_inside(self._parts.here.owner)

    def join(self, using: object) -> JobStore:  # noqa: D102
        parts = self._parts.here
        return parts.jobs_over(parts.callers.runner(using))

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:  # noqa: D102
        parts = self._parts.here
        return parts.callers.run_blocking(using, complete(parts.rows, lease, result))
