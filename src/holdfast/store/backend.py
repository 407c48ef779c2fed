"""The port of a backend: an opened store and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import Lease
from holdfast.model.limits import Limit, LimitKey
from holdfast.store.capabilities import Capabilities
from holdfast.store.insight import Insight
from holdfast.store.job_rows import Key
from holdfast.store.jobs import Extender, JobStore
from holdfast.store.records import RecordStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.streams import Streams
from holdfast.store.values import Finish, Verdict


class QueueStore(Protocol):
    """Queues are created by their first job."""

    async def pause(self, queue: str) -> bool:
        """Stop claims from the queue; False if it was paused. A queue may be paused before its first job."""
        ...

    async def resume(self, queue: str) -> bool:
        """Allow claims again; False if it was not paused."""
        ...

    async def pause_task(self, task: str) -> bool:
        """Stop claims of the task's jobs, in every queue; False if it was paused. Its first job may come later."""
        ...

    async def resume_task(self, task: str) -> bool:
        """Allow claims of the task's jobs again; False if it was not paused."""
        ...

    async def limit(self, key: LimitKey, limit: Limit | None) -> None:
        """Set the limit of a queue or task, or remove it; it may have had no job yet.

        Claims that begin afterwards obey it. Running jobs are not interrupted: claims wait until enough have ended.
        """
        ...

    async def declare(self, limits: Mapping[LimitKey, Limit | None]) -> list[LimitKey]:
        """Set the limits that code declares, where the declaration is not the last one declared; return those.

        So a limit that an operator has set since then stays when a worker restarts.
        """
        ...


class Schema(Protocol):
    """The tables in the store."""

    async def open(self, *, install: bool = True) -> None:
        """Install the tables into a store without any, if that is allowed and `install` is true; then check them."""
        ...

    async def install(self, *, only_existing: bool = False) -> int:
        """Create the tables, or upgrade them to this version; return the version. Idempotent.

        With `only_existing`, raises `SchemaMismatch` for a store without tables, and creates nothing.
        """
        ...

    async def check(self) -> int:
        """Return the version of the tables; raise `SchemaMismatch`, with the remedy, unless it is the current one."""
        ...

    def script(self) -> str:
        """Return the script that `install` runs on an empty store, without connecting."""
        ...


class Transaction(Protocol):
    """A transaction of the store in which a handler writes its effect."""

    @property
    def connection(self) -> Any:
        """The connection through which the handler writes."""
        ...

    @property
    def held(self) -> frozenset[Key]:
        """In a transaction over many jobs, the leases that are held until its end, as (seq, fence)."""
        ...

    @property
    def concerns_children(self) -> bool:
        """Whether jobs with children have ended in it; after its commit, `JobStore.promote` decides on these."""
        ...

    def complete(self, lease: Lease, result: str | None) -> Any:
        """Write the fenced completion as the last statement; returns a `Verdict` (awaitable if async).

        A store may commit effect and completion with it, and then raises here what the exit would have raised. A store
        that queues effects writes it at the exit, which raises `LeaseLost` if the fence is stale by then.
        """
        ...

    def finish(self, finishes: Sequence[Finish]) -> Any:
        """Write the fenced outcomes of many jobs as the last statements; returns the verdicts (awaitable if async).

        A store may commit with it, or write it at the exit, as `complete` does. If the exit finds a lease stale, it
        writes nothing, raises `LeaseLost`, and `held` is what is still held.
        """
        ...


class Transactions(Protocol):
    """Effect and completion in one transaction."""

    def begin(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction for an async handler; a normal exit commits, an exception rolls back.

        1. Raises `LeaseLost` at once if the fence is stale.
        2. After `limit` it is rolled back and any use raises `TransactionExpired`.
        3. Calls of this backend's `JobStore` from the same task join it while it is open.
        4. A commit whose outcome is unknown raises `OutcomeUnknown`; `JobStore.verify` returns what happened.
        5. It has at least the given isolation, whatever the default of the store.
        6. Raises `TransactionConflict` if the store rolled it back in favour of another one, at whichever statement,
           and even if the handler has caught the error of that statement.
        """
        ...

    def begin_blocking(
        self, lease: Lease, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        """The same for a handler that runs in a thread."""
        ...

    def begin_many(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction over many jobs, as `begin` does over one.

        One statement locks all leases, and `held` contains those whose fences are current. The others are not affected,
        and nothing may be written for them. Raises `LeaseLost` if all are stale.
        """
        ...

    def begin_many_blocking(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Transaction]:
        """The same for a handler that runs in a thread."""
        ...

    def is_inside(self) -> bool:
        """Whether the calling task or thread is inside a transaction that `begin` opened: then its calls join it."""
        ...

    def join(self, using: object) -> JobStore:
        """Return the job verbs bound to the caller's connection and its open transaction.

        Raises `ConfigError` if the connection is of an unknown type, outside a transaction or to another database.
        """
        ...

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:
        """Write the fenced completion in the caller's transaction."""
        ...


class Notifier(Protocol):
    """Notifications, of new jobs and events, and of ended jobs. They may be lost or false: polling is authoritative.

    Ended jobs are notified of only where something waits for one. A waiter in another process announces itself with
    `expect_ends`, which is effective for some seconds; so jobs that nothing waits for cost nothing.
    """

    def notify(self) -> None:
        """Notify all listeners, in this and in other processes. Never blocks, never raises."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, at each notification, until the returned function is called."""
        ...

    def notify_ends(self) -> None:
        """Notify those that wait for the end of jobs: jobs may have ended. Never blocks, never raises."""
        ...

    def listen_ends(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, when jobs may have ended, until the returned function is called."""
        ...

    def expect_ends(self) -> None:
        """Ask all processes to notify of ends for `EXPECTED_FOR` seconds. Never blocks, never raises."""
        ...


class Backend(Protocol):
    """A store, named by a URL. Nothing is opened before `open`; a forked child opens new connections."""

    @property
    def url(self) -> str:
        """The URL without its password."""
        ...

    @property
    def full_url(self) -> str | None:
        """The URL for another process, in any working directory, to open the same store: with settings and password.

        Never show or log it. None if the store is in this process's memory.
        """
        ...

    @property
    def file(self) -> Path | None:
        """The file of an embedded store: `open` creates it, and the clock is this host's. None for other stores."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The facts of this store."""
        ...

    @property
    def jobs(self) -> JobStore:
        """The verbs for jobs."""
        ...

    @property
    def streams(self) -> Streams:
        """The verbs for streams; raises `Unsupported`, with the reason, if the store has no streams."""
        ...

    @property
    def queues(self) -> QueueStore:
        """Pause and resume."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """Schedules and their firing."""
        ...

    @property
    def records(self) -> RecordStore:
        """Small texts that are replaced by compare-and-set."""
        ...

    @property
    def insight(self) -> Insight:
        """Lists and counts for operators."""
        ...

    @property
    def schema(self) -> Schema:
        """The tables."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Effect and completion in one transaction."""
        ...

    @property
    def notifier(self) -> Notifier:
        """Notifications of new jobs and events."""
        ...

    async def open(self, *, install: bool = True) -> None:
        """Connect and check the schema. Safe to call again.

        With `install`, a store without tables gets them, if its URL allows that. Otherwise nothing is created, neither
        tables nor a file: raises `SchemaMismatch`, or `StoreUnavailable` if there is no file.
        """
        ...

    async def close(self) -> None:
        """Close all connections of this process."""
        ...

    def extender(self) -> Extender:
        """Open the connection of the extending thread; called in that thread."""
        ...


class BackendFactory(Protocol):
    """What a backend package exports as `open_backend`."""

    def __call__(self, url: str, *, clock: Callable[[], int] | None = None) -> Backend:
        """Parse the URL and return an unopened backend; raises `ConfigError` for an invalid URL.

        `clock` replaces the store's clock with a function that returns microseconds; only `holdfast.testing` passes it.
        """
        ...


__all__ = [
    "Backend",
    "BackendFactory",
    "Insight",
    "Notifier",
    "QueueStore",
    "Schema",
    "Transaction",
    "Transactions",
]
