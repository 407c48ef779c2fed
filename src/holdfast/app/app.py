"""The app: tasks, consumers, the store behind a URL, and the operations on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Never, NoReturn, ParamSpec, Self, TypeVar, Unpack, cast, overload
from uuid import UUID

from holdfast.app.admin import Jobs, Queues, SyncJobs, SyncQueues, check_limit
from holdfast.app.app_settings import check_queue_limits, check_retention
from holdfast.app.audit import Audit, SyncAudit
from holdfast.app.batch import AsyncBatch, BlockingBatch, open_batch, open_batch_blocking
from holdfast.app.claim import callers_id, callers_lease, claim_or_release
from holdfast.app.claimed_job import ClaimedJob, known_tasks
from holdfast.app.consumers import ConsumerDesk, SyncConsumers
from holdfast.app.delegate import Delegated
from holdfast.app.events import AppEvents
from holdfast.app.job_handle import JobHandle, SyncJob
from holdfast.app.job_waits import WaitsOfApp
from holdfast.app.observing import Observing, report_enqueue
from holdfast.app.open import open_for_app, open_streams
from holdfast.app.operations import Operations, SyncOperations
from holdfast.app.relays import Relays, refuse_relay_name
from holdfast.app.retry_unknown import repeat_unknown
from holdfast.app.schedules import Schedules, SyncSchedules
from holdfast.app.sync import Blocking, Portal, Sync
from holdfast.app.task_admin import SyncTasks, TasksOfApp
from holdfast.app.tasks import TaskDecorator, TaskHandle
from holdfast.app.tokens import SyncTokens, Tokens
from holdfast.app.workers import AppWorkers
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.hooks.observers import Hooks
from holdfast.hooks.sending import send_jobs
from holdfast.jobs.enqueue_batcher import EnqueueBatcher
from holdfast.jobs.task import TASK_SETTINGS, TaskSettings, make_task
from holdfast.model.ids import id_text
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import NewJob
from holdfast.model.limits import Limit
from holdfast.model.names import check_name
from holdfast.runtime.executor import Executor
from holdfast.runtime.other_queues import APP_CALLS, AnswersOtherCalls, on_an_app
from holdfast.runtime.unawaited import MethodCall, reports_unawaited
from holdfast.runtime.unknown_settings import refuse_unknown
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Enqueued, LeaseView, Rescued, Retention, WorkerView
from holdfast.streams.consumer import CONSUMER_SETTINGS, Consumers, ConsumerSettings, make_consumer
from holdfast.worker.job_child.importing import RegisteredConsumer, remember
from holdfast.worker.work_log import log_work

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")
H = TypeVar("H", bound=Callable[..., Any])
_LEASE = timedelta(seconds=30)
_RESCUE_LIMIT = 1000


class App(AnswersOtherCalls):
    """Tasks, consumers and a store. Create one per program, at the top of a module.

    `url` names the store; the default is `$HOLDFAST_URL`, then `sqlite:///holdfast.db` in the current directory.
    `events` (or `$HOLDFAST_EVENTS_URL`) is the URL of Kafka, if new categories are to have their events there. With
    `streams`, also a URL of Kafka, there is no store: only consumers, each event at least once.
    `limits` are those of queues; a worker writes them to the store when it starts, if they were changed in the code.
    Nothing is opened before it is needed. Schedules in the code belong to the app of this `name`.
    """

    _other_calls = APP_CALLS

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        retention: Retention | None = None,
        limits: Mapping[str, Limit | None] | None = None,
        events: str | None = None,
        streams: str | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown("App", unknown, ("url", "name", "retention", "limits", "events", "streams"))
        self.name = check_name("app", name)
        self.hooks = Hooks()
        self._observing = Observing(self.hooks)
        self.on = self._observing.on  # with its overloads, which `Delegated` would lose
        log_work(self.hooks)
        self.events_url = events
        """The URL of Kafka, if the app was given one."""
        self.relays = Relays(self)
        if streams is not None and (url or events):
            raise ConfigError("streams=… is Kafka without a store: leave it out, or the URL of the store and events")
        self._is_alone = streams is not None
        self.backend: Backend = (
            open_for_app(url, events, self.relays.categories) if streams is None else open_streams(streams)
        )
        self.tasks = TasksOfApp(self)
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.schedules = Schedules(self)
        self.subscribed = Consumers()
        """The consumers that `@app.consumer` has registered."""
        self.consumers = ConsumerDesk(self)
        self.tokens = Tokens(self)
        self.audit = Audit(self)
        self.operations = Operations(self)
        self.portal = Portal()
        self.retention = check_retention(retention)
        self.queue_limits = check_queue_limits(limits)
        self._events = AppEvents(self)
        self._workers = AppWorkers(self)
        self._batcher = EnqueueBatcher()
        self._opened_in = 0  # the process in which the store is open
        self.waits = WaitsOfApp(self)
        self._is_inside = _never  # whether the caller is inside a transaction of the open store

    def __repr__(self) -> str:
        """Show the store, without a password."""
        return f"<App {self.backend.url}, {len(self.tasks)} tasks>"

    @property
    def sync(self) -> SyncApp:
        """The same with blocking calls."""
        return SyncApp(self, self.portal)

    # --- the store --------------------------------------------------------------------------------------------------

    def use(self, url: str) -> None:
        """Use the store behind another URL; raises `ConfigError` once a store is open in this process."""
        if self.is_open:
            raise ConfigError(f"{self.backend.url} is open already: call app.use(…) earlier, or app.close() first")
        if self._is_alone:
            raise ConfigError(f"this app reads {self.backend.url} without a store: omit --url, unset $HOLDFAST_URL")
        self.backend = open_for_app(url, self.events_url, self.relays.categories)

    @property
    def is_open(self) -> bool:
        """Whether the store is open in this process."""
        return self._opened_in == os.getpid()

    async def opened(self, *, install: bool = True) -> Backend:
        """Return the backend, opened in this process; a store without tables gets them only with `install`."""
        if self._opened_in != os.getpid():
            await self.backend.open(install=install)
            has_effects = self.backend.capabilities.commits_effects
            self._is_inside = self.backend.transactions.is_inside if has_effects else _never
            self._opened_in = os.getpid()
        return self.backend

    async def close(self) -> None:
        """Close the connections of this process; the next call opens them again."""
        await self.hooks.settle(cancels=True)
        self._opened_in = 0
        await self.relays.close()
        await self.backend.close()

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.close()

    async def enqueue_new(self, jobs: Sequence[NewJob], *, using: object = None) -> Sequence[Enqueued]:
        """Enqueue jobs that are checked and encoded; in the caller's open transaction if `using` is given."""
        around, send = self.hooks.sending, self._enqueue_new
        answers = await (send_jobs(around, jobs, lambda jobs: send(jobs, using)) if around else send(jobs, using))
        if self.hooks.job_enqueue.observers:
            report_enqueue(self.hooks.job_enqueue, jobs, answers)
        return answers

    async def _enqueue_new(self, jobs: Sequence[NewJob], using: object) -> Sequence[Enqueued]:
        backend = self.backend if self._opened_in == os.getpid() else await self.opened()
        if using is not None:
            return await backend.transactions.join(using).enqueue(jobs)
        if self._is_inside():
            return await backend.jobs.enqueue(jobs)
        try:
            return await self._batcher.enqueue(backend, jobs)
        except OutcomeUnknown as unknown:
            return await repeat_unknown(backend, unknown, lambda: self._batcher.enqueue(backend, jobs))

    # --- tasks ------------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> TaskHandle[P, R]: ...
    @overload
    def task(self, /, **settings: Unpack[TaskSettings]) -> TaskDecorator: ...
    @on_an_app
    def task(self, function: Any = None, /, **settings: Unpack[TaskSettings]) -> Any:
        """Register a function as the handler of a task; the settings are those of `TaskSettings`."""
        refuse_unknown("@app.task", settings, TASK_SETTINGS)

        def register(function: Callable[Q, S], /) -> TaskHandle[Q, S]:
            task = make_task(function, **settings)
            self.tasks.add(task)
            return TaskHandle(self, task, function)

        return register if function is None else register(function)

    schedule = Delegated("schedules", Schedules.schedule)
    off = Delegated("_observing", Observing.off)
    middleware = Delegated("_observing", Observing.middleware)

    @reports_unawaited("nothing was enqueued")
    async def enqueue(self, call: MethodCall, /, task: str, *args: Any, **kwargs: Any) -> JobHandle:
        """Make a job of a call to a task given by name; raises `TaskNotFound`."""
        call.is_started = True
        definition = self.tasks.get(task)
        return await TaskHandle(self, definition, definition.handler).enqueue(*args, **kwargs)

    def job(self, job_id: str | UUID) -> JobHandle:
        """Return the handle of a job by its id."""
        return JobHandle(self, id_text(job_id))

    # --- events and consumers ---------------------------------------------------------------------------------------

    category = Delegated("_events", AppEvents.category)
    categories = Delegated("_events", AppEvents.categories)
    append = Delegated("_events", AppEvents.append)
    append_many = Delegated("_events", AppEvents.append_many)
    read = Delegated("_events", AppEvents.read)
    trim = Delegated("_events", AppEvents.trim)
    nodes = Delegated("_events", AppEvents.nodes)
    leader = Delegated("_events", AppEvents.leader)

    @on_an_app
    def consumer(self, name: str, **settings: Unpack[ConsumerSettings]) -> Callable[[H], H]:
        """Register a function, or a class with a method `handle`, as a consumer.

        The handler takes an event, or a list of them if it is so annotated, and optionally a context. The settings are
        those of `ConsumerSettings`. Raises `ConfigError` for one that is unknown or invalid.
        """
        if callable(cast("object", name)):
            own = getattr(name, "__name__", "name")
            remedy = f'pass a name and what it reads, as in @app.consumer("{own}", category=…)'
            raise ConfigError(f"@app.consumer needs parentheses: {remedy}")
        refuse_unknown(f"consumer {name!r}", settings, CONSUMER_SETTINGS)
        refuse_relay_name(name)

        def register(handler: H) -> H:
            try:
                consumer = make_consumer(name, handler, **settings)
            except TypeError as error:  # for example a class whose constructor needs arguments
                raise ConfigError(f"consumer {name!r}: {error}") from error
            self.subscribed.add(consumer)
            if consumer.executor is Executor.PROCESS:
                remember(handler, RegisteredConsumer(consumer, self))
            return handler

        return register

    relay = Delegated("relays", Relays.relay)
    node = Delegated("_workers", AppWorkers.node)

    # --- workers ----------------------------------------------------------------------------------------------------

    worker = Delegated("_workers", AppWorkers.worker)
    run_worker = Delegated("_workers", AppWorkers.run_worker)
    working = Delegated("_workers", AppWorkers.working)
    drain = Delegated("_workers", AppWorkers.drain)

    # --- claiming by hand -------------------------------------------------------------------------------------------

    async def claim(
        self,
        queue: str,
        limit: int = 1,
        *,
        tasks: Sequence[str] | None = None,
        lease: float | timedelta = _LEASE,
        worker_id: str | None = None,
    ) -> list[ClaimedJob]:
        """Claim at most `limit` ready jobs of a queue, on Redis 1,000; the caller finishes, extends or releases them.

        Without `worker_id` every claim gets a new one. A caller that is cancelled waits for the end of the claim, whose
        jobs are then released. They are also released after `OutcomeUnknown`, unless `worker_id` was given: other
        callers may hold leases under it. If the store cannot be reached, the leases expire.
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
        jobs = await claim_or_release(backend.jobs, request, has_own_id=worker_id is None)
        return [ClaimedJob(self, job, span) for job in jobs]

    def batch(self, jobs: Sequence[ClaimedJob], *, isolation: Isolation = READ_COMMITTED) -> AsyncBatch:
        """Open one transaction for the effects of claimed jobs and their outcomes: all are written, or none.

        Write through `batch.connection`, only for the jobs in `batch.held`, and record each outcome with
        `batch.complete(job)` or `batch.retry(job, error)`. Raises `LeaseLost` if the leases of all jobs are lost.
        """
        return open_batch(self, jobs, isolation)

    async def wake(self) -> None:
        """Notify waiting workers of new jobs, for example after a transaction of the caller that enqueued some.

        This only reduces latency: without it workers poll every `poll_interval`.
        """
        (await self.opened(install=False)).notifier.notify()

    # --- leases and workers -----------------------------------------------------------------------------------------

    async def leases(self, limit: int = 100, *, expired_only: bool = False) -> list[LeaseView]:
        """List active leases, the next to expire first."""
        return await (await self.opened(install=False)).insight.leases(check_limit(limit), expired_only=expired_only)

    async def rescue(self, limit: int = _RESCUE_LIMIT) -> list[Rescued]:
        """Revoke at most `limit` expired leases now; call it again while it returns that many.

        Workers do this regularly, but only after half a lease of uninterrupted access to the store.
        """
        return await (await self.opened(install=False)).jobs.rescue(None, check_limit(limit))

    async def workers(self) -> list[WorkerView]:
        """List the workers that have sent a heartbeat."""
        return await (await self.opened(install=False)).insight.workers()


class SyncApp(Sync[App]):
    """`app.sync`; `with app.sync:` opens the store and closes it."""

    jobs: SyncJobs
    queues: SyncQueues
    schedules: SyncSchedules
    tasks: SyncTasks
    consumers: SyncConsumers
    tokens: SyncTokens
    audit: SyncAudit
    operations: SyncOperations
    opened = Blocking(App.opened)
    enqueue = Blocking(App.enqueue)
    claim = Blocking(App.claim)
    drain = Blocking(AppWorkers.drain)
    wake = Blocking(App.wake)
    leases = Blocking(App.leases)
    rescue = Blocking(App.rescue)
    workers = Blocking(App.workers)
    category = Blocking(AppEvents.category)
    categories = Blocking(AppEvents.categories)
    append = Blocking(AppEvents.append)
    append_many = Blocking(AppEvents.append_many)
    read = Blocking(AppEvents.read)
    trim = Blocking(AppEvents.trim)
    nodes = Blocking(AppEvents.nodes)
    leader = Blocking(AppEvents.leader)

    def __enter__(self) -> Self:
        """Open the store."""
        self.opened()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store, as `close` does."""
        self.close()

    def close(self) -> None:
        """Close the connections of this process and end the thread of its blocking calls; the next call starts it.

        Waits for interrupted calls. Raises `ConfigError`, and closes nothing, if they do not end or other calls are
        in flight, for example in other threads.
        """
        self.portal.settle()
        self.portal.call(self.target.close())
        self.portal.close()

    def job(self, job_id: str | UUID) -> SyncJob:
        """Return the blocking handle of a job by its id."""
        return self.target.job(job_id).sync

    def batch(self, jobs: Sequence[ClaimedJob], *, isolation: Isolation = READ_COMMITTED) -> BlockingBatch:
        """Open one transaction over claimed jobs, as `App.batch` does; `batch.connection` is a blocking one."""
        return open_batch_blocking(self.target, jobs, isolation)

    def worker(self, **_: object) -> NoReturn:
        """Raise `ConfigError`: a worker needs its own event loop."""
        remedy = "run it with app.run_worker(…), or a queue until nothing is ready with app.sync.drain(queue)"
        raise ConfigError(f"a worker runs in async code: {remedy}")

    working = worker

    def node(self, **_: object) -> NoReturn:
        """Raise `ConfigError`: a node needs its own event loop."""
        raise ConfigError("a node runs in async code: run the consumers as a program with app.run_worker(…)")


def _never() -> bool:
    return False
