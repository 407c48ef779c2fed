"""`Backend` on a SQL store, over the parts that each process opens for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from holdfast.backends.sql.schema import SqlSchema
from holdfast.backends.sql.streams.consumer_store import HandlersTransactions
from holdfast.concurrency.per_process import PerProcess
from holdfast.model.job import Lease
from holdfast.store.backend import Insight, Notifier, QueueStore, Transaction
from holdfast.store.handler_transaction import entered
from holdfast.store.jobs import JobStore
from holdfast.store.streams import Streams
from holdfast.store.values import Verdict


class Location(Protocol):
    """The place that a store's URL names."""

    @property
    def url(self) -> str: ...  # noqa: D102

    @property
    def full_url(self) -> str | None: ...  # noqa: D102


class SqlParts(ABC):
    """The connections of one process and the verbs over them; `owner` identifies its handlers' transactions."""

    jobs: JobStore
    streams: Streams
    queues: QueueStore
    insight: Insight
    schema: SqlSchema
    notifier: Notifier
    transactions: HandlersTransactions
    owner: object

    @abstractmethod
    async def close(self) -> None:
        """Close everything."""


Parts = TypeVar("Parts", bound=SqlParts)


class SqlBackend(ABC, Generic[Parts]):
    """`Backend` and `Transactions` on a SQL store, except `capabilities` and `extender`."""

    def __init__(self, location: Location, open_parts: Callable[[], Parts]) -> None:
        self.url = location.url
        self.full_url = location.full_url
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
    def insight(self) -> Insight:  # noqa: D102
        return self._parts.here.insight

    @property
    def schema(self) -> SqlSchema:  # noqa: D102
        return self._parts.here.schema

    @property
    def notifier(self) -> Notifier:  # noqa: D102
        return self._parts.here.notifier

    @property
    def transactions(self) -> Self:  # noqa: D102
        return self

    async def open(self) -> None:  # noqa: D102
        await self.schema.open()

    async def close(self) -> None:  # noqa: D102
        parts = self._parts.take()
        if parts is not None:
            await parts.close()

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[Transaction]:  # noqa: D102
        return self._parts.here.transactions.begin(lease, limit=limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[Transaction]:  # noqa: D102
        return self._parts.here.transactions.begin_blocking(lease, limit=limit)

    def is_inside(self) -> bool:  # noqa: D102
        return entered(self._parts.here.owner) is not None

    @abstractmethod
    def join(self, using: object) -> JobStore: ...  # noqa: D102

    @abstractmethod
    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict: ...  # noqa: D102
