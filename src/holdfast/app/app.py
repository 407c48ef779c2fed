"""The app: tasks, the store behind a URL, and everything that can be done with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload
from uuid import UUID

from holdfast.app.admin import Jobs, Queues, check_limit
from holdfast.app.batch import Batch, open_batch
from holdfast.app.claim import callers_id, callers_lease, claim_or_give_back
from holdfast.app.claimed_job import ClaimedJob, known_tasks
from holdfast.app.job_handle import JobHandle
from holdfast.app.open import DEFAULT_URL, open_backend
from holdfast.app.retry_unknown import until_known
from holdfast.app.run_worker import WorkerProcess, run_many, run_one, tell_of_consumers_left_out
from holdfast.app.streams import StreamApp
from holdfast.app.sync import Portal
from holdfast.app.sync_app import AppSync
from holdfast.app.sync_types import SyncApp
from holdfast.app.tasks import TaskHandle
from holdfast.app.unknown_settings import refuse_unknown
from holdfast.app.worker_settings import (
    DRAIN_SETTINGS,
    WORKER_SETTINGS,
    DrainSettings,
    WorkerSettings,
    make_worker,
)
from holdfast.errors import ConfigError
from holdfast.jobs.enqueue_batcher import EnqueueBatcher
from holdfast.jobs.task import Tasks, make_task
from holdfast.model.allocation import Timing
from holdfast.model.ids import id_text
from holdfast.model.job import NewJob
from holdfast.model.names import check_name
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, LeaseView, Rescued, Retention, WorkerView
from holdfast.worker.decision import Totals
from holdfast.worker.supervision.children import ChildSeat
from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")
_LEASE = timedelta(seconds=30)
_RESCUE_LIMIT = 1000
_BEYOND_DRAIN = 10.0  # seconds that a supervisor grants a worker beyond the end of its handlers


class TaskDecorator(Protocol):
    """What `@app.task(…)` is: it makes a task of a function and keeps its type."""

    def __call__(self, function: Callable[Q, S], /) -> TaskHandle[Q, S]:
        """Register the function."""
        ...


class App(StreamApp):
    """Tasks, consumers and a store. Make one per program, at the top of a module.

    `url` names the store; without it `$HOLDFAST_URL` does, and without that it is `sqlite:///holdfast.db` in the
    current directory. Nothing is opened before it is needed. Every async method has a blocking twin under `.sync`.
    """

    def __init__(self, url: str | None = None, *, retention: Retention | None = None) -> None:
        super().__init__()
        self.backend: Backend = open_backend(os.environ.get("HOLDFAST_URL") or DEFAULT_URL if url is None else url)
        self.tasks = Tasks()
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.portal = Portal()
        self._joiner = EnqueueBatcher(lambda: self.backend.jobs)
        self.retention = _check_retention(retention)
        self._opened_in = 0

    def __repr__(self) -> str:
        """Show the store, without a password."""
        return f"<App {self.backend.url}, {len(self.tasks)} tasks>"

    @property
    def sync(self) -> SyncApp:
        """The same with blocking calls."""
        return cast("SyncApp", AppSync(self, self.portal))

    def use(self, url: str) -> None:
        """Lead to the store behind another URL from now on; refused once a store is open in this process."""
        if self.is_open:
            message = f"{self.backend.url} is open already: call app.use(…) before anything else, or app.close() first"
            raise ConfigError(message)
        self.backend = open_backend(url)

    @property
    def is_open(self) -> bool:
        """Whether the store is open in this process."""
        return self._opened_in == os.getpid()

    async def opened(self) -> Backend:
        """Return the backend, opened in this process."""
        if not self.is_open:
            await self.backend.open()
            self._opened_in = os.getpid()
        return self.backend

    async def close(self) -> None:
        """Close the connections of this process; the next call opens them again."""
        self._opened_in = 0
        await self.backend.close()

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def enqueue_new(self, jobs: Sequence[NewJob], *, using: object = None) -> list[bool]:
        """Enqueue jobs that are checked and encoded; in the caller's own transaction if `using` is given."""
        backend = await self.opened()
        if using is not None:
            return await backend.transactions.join(using).enqueue(jobs)
        if backend.capabilities.joins_transactions and backend.transactions.is_inside():
            return await backend.jobs.enqueue(jobs)
        return await until_known(backend, lambda: self._joiner.enqueue(jobs))

    # --- tasks ------------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> TaskHandle[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 5,
        priority: int = 0,
        timeout: float | timedelta | None = None,
        retry: object = None,
        executor: str | None = None,
    ) -> TaskDecorator: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 5,
        priority: int = 0,
        timeout: float | timedelta | None = None,
        retry: object = None,
        executor: str | None = None,
    ) -> Any:
        """Register a function as the handler of a task.

        `retry` is seconds, a policy such as `Exponential()`, or a function `(attempt, error) -> seconds | None`.
        `executor="process"` runs it in a child process; else an `async def` runs in the event loop and a plain function
        in a thread. `timeout` limits one attempt.
        """

        def register(function: Callable[Q, S], /) -> TaskHandle[Q, S]:
            task = make_task(
                function,
                name=name,
                queue=queue,
                max_attempts=max_attempts,
                priority=priority,
                timeout=timeout,
                retry=retry,
                executor=executor,
            )
            self.tasks.add(task)
            return TaskHandle(self, task, function)

        return register if function is None else register(function)

    async def enqueue(self, task: str, *args: Any, **kwargs: Any) -> JobHandle:
        """Make a job of a call to a task given by name; raises `TaskNotFound`."""
        definition = self.tasks.get(task)
        return await TaskHandle(self, definition, definition.handler).enqueue(*args, **kwargs)

    def job(self, job_id: str | UUID) -> JobHandle:
        """Return the handle of a job by its id."""
        return JobHandle(self, id_text(job_id))

    # --- the pull side ----------------------------------------------------------------------------------------------

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """Return a worker over this app's tasks; `await worker.run()` runs it.

        By default it serves every queue, runs 10 jobs at once, holds each for a lease of 30 seconds and extends it at
        half of that. `worker_class` may be a subclass of `Worker` with its own `process`. Raises `ConfigError` for a
        setting that cannot work. It never ends the process: where a handler is stuck, `run` raises `WorkerBroken`.
        """
        refuse_unknown("app.worker", settings, WORKER_SETTINGS)
        return make_worker(self, settings)

    def run_worker(
        self,
        *,
        processes: int = 1,
        node_id: str | None = None,
        timing: Timing | None = None,
        **settings: Unpack[WorkerSettings],
    ) -> int:
        """Run a worker as this program until SIGTERM or SIGINT and return its exit code.

        It runs the app's tasks and, as a node, its consumers; in until-empty mode only the tasks. With `processes`
        above one a supervisor starts that many, restarts those that die and frees what they held. The settings are
        those of `worker`. The process is the worker's own: a handler stuck past its time limit ends it, with code 71.
        """
        refuse_unknown("app.run_worker", settings, (*WORKER_SETTINGS, "processes", "node_id", "timing"))
        if settings.get("until_empty"):
            tell_of_consumers_left_out(self)
        if processes == 1:
            return run_one(self, lambda: self._crew(node_id, timing, settings))
        shared = settings.copy()
        name = shared.pop("worker_id", None)
        sample = self._crew(node_id, timing, shared)  # refuses bad settings here rather than in every child

        def make_crew(seat: ChildSeat) -> WorkerProcess:
            node = None if node_id is None else f"{node_id}.{seat.index}"
            own = shared.copy()
            own["worker_id"] = seat.worker_id
            return self._crew(node, timing, own)

        return run_many(self, make_crew, processes, kill_after=sample.handlers_end_within + _BEYOND_DRAIN, name=name)

    def _crew(self, node_id: str | None, timing: Timing | None, settings: WorkerSettings) -> WorkerProcess:
        """Return what this program runs: a worker unless there are consumers alone, a node if there are any."""
        consumes = len(self.subscribed) > 0 and not settings.get("until_empty")
        worker = None if consumes and not len(self.tasks) else make_worker(self, settings, owns_process=True)
        return WorkerProcess(worker, self.node(node_id=node_id, timing=timing) if consumes else None)

    async def claim(
        self,
        queue: str,
        limit: int = 1,
        *,
        tasks: Sequence[str] | None = None,
        lease: float | timedelta = _LEASE,
        worker_id: str | None = None,
    ) -> list[ClaimedJob]:
        """Claim at most `limit` ready jobs of a queue; the caller finishes, extends or releases them.

        Without `worker_id` every claim has an id of its own. A caller that is cancelled waits for the end of the claim,
        and what it took is given back. So it is after `OutcomeUnknown`, unless `worker_id` was given: others may hold
        jobs under that. What cannot be given back, because the store cannot be reached, expires with its lease.
        """
        backend = await self.opened()
        span = callers_lease(lease)
        request = ClaimRequest(
            worker_id=callers_id(worker_id),
            tasks=known_tasks(self, tasks),
            limit=check_limit(limit),
            lease=span,
            queues=(check_name("queue", queue),),
            isolates=False,
        )
        await backend.jobs.promote(_RESCUE_LIMIT)
        jobs = await claim_or_give_back(backend.jobs, request, has_own_id=worker_id is None)
        return [ClaimedJob(self, job, span) for job in jobs]

    def batch(self, jobs: Sequence[ClaimedJob]) -> AbstractAsyncContextManager[Batch]:
        """Open one transaction in which the effects of claimed jobs and their ends are written, all or none.

        Write through `batch.connection`, for the jobs in `batch.held` alone, and note how each ends with
        `batch.complete(job)` or `batch.retry(job, error)`. Raises `LeaseLost` if none of the jobs is held any more.
        """
        return open_batch(self, jobs)

    async def drain(self, queue: str, batch: int = 50, **settings: Unpack[DrainSettings]) -> Totals:
        """Run what is ready in a queue, at most `batch` jobs at a time, and return when nothing more is.

        Raises `WorkerBroken`, which names the job, when a handler is stuck past its time limit: its lease expires.
        """
        refuse_unknown("app.drain", settings, DRAIN_SETTINGS)
        own = {"queues": [queue], "until_empty": True, "concurrency": batch, "batch_max": batch, "prefetch_max": 0}
        worker = make_worker(self, {**settings, **own}, until_idle=True)
        await worker.run()
        return worker.status().totals

    async def wake(self) -> None:
        """Hint to waiting workers that there may be work, as after a transaction of one's own that enqueued some.

        Nothing depends on it: without a hint they look by themselves, every `poll_interval`.
        """
        (await self.opened()).notifier.notify()

    # --- leases and workers -----------------------------------------------------------------------------------------

    async def leases(self, limit: int = 100, *, expired_only: bool = False) -> list[LeaseView]:
        """List active leases, the next to expire first."""
        return await (await self.opened()).insight.leases(check_limit(limit), expired_only=expired_only)

    async def rescue(self, limit: int = _RESCUE_LIMIT) -> list[Rescued]:
        """Take at most `limit` expired leases from their workers now; call it again while it returns that many.

        Workers do this all the time, with more patience.
        """
        return await (await self.opened()).jobs.rescue(None, check_limit(limit))

    async def workers(self) -> list[WorkerView]:
        """List the workers that have reported."""
        return await (await self.opened()).insight.workers()


def _check_retention(retention: Retention | None) -> Retention:
    if retention is not None and not isinstance(cast("object", retention), Retention):
        remedy = "pass Retention(completed=timedelta(days=7)), or leave it out"
        raise ConfigError(f"retention={retention!r} does not say what is kept for how long: {remedy}")
    return retention or Retention()
