"""The types of `.sync`: the signatures of the async classes without `async`.

At run time `.sync` is made by `Sync` and those derived from it; here is what editors and type checkers know of it. A
test holds each signature to that of its async twin, whose docstring states the contract.
"""

# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.app.batch import Batch
    from holdfast.app.claimed_job import ClaimedJob
    from holdfast.app.job_handle import JobHandle
    from holdfast.app.worker_settings import DrainSettings
    from holdfast.jobs.context import Context
    from holdfast.model.event import Appended
    from holdfast.model.job import JobState, LeasedJob
    from holdfast.store.backend import Backend
    from holdfast.store.stream_values import CategoryView, ConsumerView, LeaderView, NodeView, ParkedView, StartAt
    from holdfast.store.values import (
        Cancellation,
        Count,
        JobDetails,
        JobPage,
        LeaseView,
        QueueView,
        Rescued,
        WorkerView,
    )
    from holdfast.streams.reading import After, EventPage
    from holdfast.worker.decision import Totals


class SyncJob(Protocol):
    """`JobHandle.sync`."""

    id: str
    created: bool

    @property
    def sync(self) -> Self: ...
    def details(self) -> JobDetails: ...
    def state(self) -> JobState: ...
    def result(self, type: Any = Any) -> Any: ...  # noqa: A002 - as msgspec calls it; the caller's type
    def cancel(self, reason: str = "") -> Cancellation: ...
    def wait(self, timeout: float | timedelta | None = None) -> JobState: ...


class SyncTask(Protocol):
    """`TaskHandle.sync`."""

    @property
    def sync(self) -> Self: ...
    @property
    def name(self) -> str: ...
    def options(  # noqa: PLR0913 - the options of a job, by name
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        order_key: str | None = None,
        job_id: str | UUID | None = None,
        using: object = None,
    ) -> SyncTask: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle: ...
    def enqueue_many(
        self,
        calls: Iterable[Mapping[str, Any] | Sequence[Any]],
        *,
        job_ids: Iterable[str | UUID] | None = None,
    ) -> Sequence[JobHandle]: ...


class SyncHeldJob(Protocol):
    """`ClaimedJob.sync`."""

    job: LeasedJob
    span: timedelta

    @property
    def sync(self) -> Self: ...
    @property
    def id(self) -> str: ...
    def arguments(self) -> tuple[list[Any], dict[str, Any]]: ...
    def context(self) -> Context: ...
    def extend(self, duration: float | timedelta | None = None) -> None: ...
    def complete(self, result: object = None) -> None: ...
    def retry(self, error: BaseException | str, delay: float | timedelta | None = None) -> None: ...
    def fail(self, error: BaseException | str) -> None: ...
    def cancel(self, reason: str = "") -> None: ...
    def release(self) -> None: ...


class SyncJobs(Protocol):
    """`app.jobs.sync`."""

    @property
    def sync(self) -> Self: ...
    def show(self, job_id: str | UUID) -> JobDetails: ...
    def list(
        self,
        state: JobState | str,
        *,
        queue: str | None = None,
        task: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobPage: ...
    def cancel(self, job_id: str | UUID, reason: str = "") -> Cancellation: ...
    def retry(self, job_id: str | UUID) -> bool: ...
    def copy(self, job_id: str | UUID, *, copy_id: str | UUID | None = None) -> str: ...
    def reset(self, job_id: str | UUID) -> bool: ...
    def counts(self, since: float | timedelta = timedelta(hours=1)) -> Sequence[Count]: ...


class SyncQueues(Protocol):
    """`app.queues.sync`."""

    @property
    def sync(self) -> Self: ...
    def list(self) -> Sequence[QueueView]: ...
    def pause(self, queue: str) -> bool: ...
    def resume(self, queue: str) -> bool: ...


class SyncConsumers(Protocol):
    """`app.consumers.sync`."""

    @property
    def sync(self) -> Self: ...
    def list(self) -> Sequence[ConsumerView]: ...
    def show(self, consumer: str) -> ConsumerView: ...
    def pause(self, consumer: str) -> bool: ...
    def resume(self, consumer: str) -> bool: ...
    def reset(self, consumer: str, to: StartAt | datetime | int | str, *, within: float | timedelta = 30.0) -> None: ...
    def forget(self, consumer: str) -> bool: ...
    def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int = 100) -> Sequence[ParkedView]: ...
    def retry_parked(self, consumer: str, stream: str | None = None) -> int: ...
    def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | UUID | None = None) -> int: ...


class SyncApp(Protocol):
    """`App.sync`; `with app.sync:` opens the store and closes it."""

    jobs: SyncJobs
    queues: SyncQueues
    consumers: SyncConsumers

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def sync(self) -> Self: ...
    def opened(self) -> Backend: ...
    def close(self) -> None: ...
    def enqueue(self, task: str, *args: Any, **kwargs: Any) -> JobHandle: ...
    def job(self, job_id: str | UUID) -> SyncJob: ...
    def claim(
        self,
        queue: str,
        limit: int = 1,
        *,
        tasks: Sequence[str] | None = None,
        lease: float | timedelta = timedelta(seconds=30),
        worker_id: str | None = None,
    ) -> list[ClaimedJob]: ...
    def batch(self, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[Batch]: ...
    def drain(self, queue: str, batch: int = 50, **settings: Unpack[DrainSettings]) -> Totals: ...
    def wake(self) -> None: ...
    def leases(self, limit: int = 100, *, expired_only: bool = False) -> list[LeaseView]: ...
    def rescue(self, limit: int = 1000) -> list[Rescued]: ...
    def workers(self) -> list[WorkerView]: ...
    def category(self, name: str, *, partitions: int | None = None) -> CategoryView: ...
    def categories(self) -> Sequence[CategoryView]: ...
    def append(
        self,
        category: str,
        *,
        stream: str,
        name: str,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        event_id: str | UUID | None = None,
        using: object = None,
    ) -> Appended: ...
    def append_many(
        self, category: str, events: Iterable[Mapping[str, Any]], *, using: object = None
    ) -> Sequence[Appended]: ...
    def read(
        self,
        category: str | None = None,
        *,
        stream: str | None = None,
        log: bool = False,
        partition_id: int | None = None,
        after: After = None,
        backwards: bool = False,
        limit: int = 100,
    ) -> EventPage: ...
    def trim(
        self, category: str, older_than: float | timedelta, *, limit: int = 10_000, past_unread: bool = False
    ) -> int: ...
    def nodes(self) -> Sequence[NodeView]: ...
    def leader(self) -> LeaderView | None: ...
