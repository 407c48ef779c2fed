"""An opened store and its parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from holdfast.model.job import Lease
from holdfast.store.capabilities import Capabilities
from holdfast.store.jobs import Extender, JobStore
from holdfast.store.streams import Streams
from holdfast.store.values import (
    Count,
    JobDetails,
    JobFilter,
    JobPage,
    LeaseView,
    QueueView,
    Verdict,
    WorkerView,
)


class QueueStore(Protocol):
    """Queues come into being with their first job."""

    async def pause(self, queue: str) -> bool:
        """Let nobody claim from the queue; False if it was paused. A queue may be paused before its first job."""
        ...

    async def resume(self, queue: str) -> bool:
        """Allow claims again; False if it was not paused."""
        ...


class Insight(Protocol):
    """Read-only lists and counts for people, cheap at a million rows."""

    async def job(self, job_id: str) -> JobDetails:
        """Return all that is known of a job; raises `JobNotFound`."""
        ...

    async def find(self, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` ids of jobs that begin with `prefix`."""
        ...

    async def jobs(self, selection: JobFilter) -> JobPage:
        """List jobs in one state, one page: waiting ones in the order in which they will run, others newest first."""
        ...

    async def queues(self) -> list[QueueView]:
        """List all queues with their counts."""
        ...

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:
        """List active leases, the next to expire first."""
        ...

    async def workers(self) -> list[WorkerView]:
        """List the workers that have reported and were not forgotten."""
        ...

    async def counts(self, since: timedelta) -> list[Count]:
        """Return the counts per minute, queue and task of the time since."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return what a doctor wants to know of the store: version, durability, sizes, settings; no secrets.

        `now_us` is the store's clock, in microseconds.
        """
        ...


class Schema(Protocol):
    """The tables in the store."""

    async def install(self) -> int:
        """Bring the tables to this version, from nothing or from an older one; return the version. Repeatable."""
        ...

    async def check(self) -> None:
        """Raise `SchemaMismatch`, with the remedy, unless the tables are those of this version."""
        ...

    def script(self) -> str:
        """Return what `install` would run on an empty store, without connecting."""
        ...


class Transaction(Protocol):
    """A transaction of the store in which a handler writes its effect."""

    @property
    def connection(self) -> Any:
        """What the handler writes through."""
        ...

    def complete(self, lease: Lease, result: str | None) -> Any:
        """Write the fenced completion as the last statement; a `Verdict`."""
        ...


class Transactions(Protocol):
    """Effect and completion in one transaction."""

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction for an async handler; leaving it normally commits, by an exception rolls back.

        1. Raises `LeaseLost` at once if the fence is stale.
        2. After `limit` it is rolled back and any use raises `TransactionExpired`.
        3. Calls of this backend's `JobStore` from the same task while it is open join it.
        4. A commit whose outcome is unknown raises `OutcomeUnknown`; `JobStore.verify` tells.
        """
        ...

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[Transaction]:
        """The same for a handler in a thread."""
        ...

    def is_inside(self) -> bool:
        """Tell whether the calling task or thread is inside a transaction that `begin` opened: its calls join that."""
        ...

    def join(self, using: object) -> JobStore:
        """Return the job verbs bound to the caller's own connection and its open transaction.

        Raises `ConfigError` if the connection is of an unknown kind, is outside a transaction or leads elsewhere.
        """
        ...

    def complete(self, lease: Lease, result: str | None, *, using: object) -> Verdict:
        """Write the fenced completion in the caller's own transaction."""
        ...


class Notifier(Protocol):
    """Hints that there may be work. A hint may be lost or false: polling is the truth."""

    def notify(self) -> None:
        """Hint to all listeners, here and in other processes, that there may be work. Never blocks, never raises."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, at each hint, until the returned function is called."""
        ...


class Backend(Protocol):
    """A store behind a URL. Nothing is opened until `open`; a forked child opens its own."""

    @property
    def url(self) -> str:
        """The URL without its password."""
        ...

    @property
    def full_url(self) -> str | None:
        """The URL that leads another process to this very store, whatever its directory: settings and password too.

        Never to be shown or logged. None where no other process can come: the store lives in this one's memory.
        """
        ...

    @property
    def file(self) -> Path | None:
        """The file of an embedded store, which `open` creates and whose clock is this host's; None for any other."""
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
        """The verbs for streams; raises `Unsupported`, with the reason, where the store keeps none."""
        ...

    @property
    def queues(self) -> QueueStore:
        """Pause and resume."""
        ...

    @property
    def insight(self) -> Insight:
        """What people look at."""
        ...

    @property
    def schema(self) -> Schema:
        """The tables."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Effect and completion together."""
        ...

    @property
    def notifier(self) -> Notifier:
        """Hints of new work."""
        ...

    async def open(self) -> None:
        """Connect and check the schema; an embedded store installs it. Safe to call again."""
        ...

    async def close(self) -> None:
        """Close what this process opened."""
        ...

    def extender(self) -> Extender:
        """Open the extending thread's own connection; called in that thread."""
        ...


class BackendFactory(Protocol):
    """What a backend package exports as `open_backend`."""

    def __call__(self, url: str, *, clock: Callable[[], int] | None = None) -> Backend:
        """Parse the URL and return an unopened backend; raises `ConfigError` for a URL that cannot be.

        `clock` replaces the store's clock by one that returns microseconds; only `holdfast.testing` passes it.
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
