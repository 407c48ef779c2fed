"""The worker: carries out the machine's decisions (store calls, handlers) and reports the results to it.

Claim, flush and maintenance have one call in flight each, concurrently with the handlers: claim, handle and finish
overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, HoldfastError
from holdfast.hooks.observers import Hooks
from holdfast.jobs.context import Context
from holdfast.jobs.task import Task
from holdfast.model.declarations import Declarations
from holdfast.model.job import LeasedJob
from holdfast.model.names import check_name
from holdfast.model.outcome import Outcome
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, Outstanding, Retention, WorkerHeartbeat
from holdfast.worker.attempt_reports import AttemptReports
from holdfast.worker.attempts import RUNNING, Attempts
from holdfast.worker.batch_attempts import BatchAttempts
from holdfast.worker.decision import Exit, Status
from holdfast.worker.declared_limits import DeclaredLimits, open_with_limits
from holdfast.worker.execution import custom_plan_for, plan_for
from holdfast.worker.forming import BatchSize
from holdfast.worker.identity import incarnation
from holdfast.worker.job_child.pool import ChildPool
from holdfast.worker.lease_keeper import HandlerStuck, LeaseKeeper
from holdfast.worker.lease_reports import LeaseReports
from holdfast.worker.machine import Machine
from holdfast.worker.pauses import pause
from holdfast.worker.schedules import firing
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.store_calls import TRANSIENT, StoreCalls
from holdfast.worker.switch_interval import quick_switches
from holdfast.worker.work_log import log_work

_logger = logging.getLogger("holdfast.worker")
monotonic = time.monotonic
_RELEASE_TIMEOUT = 5.0  # seconds to flush and release when a worker is cancelled or broken
_SLICE = 0.002  # seconds of handlers before replies of the store are processed


class WorkerBroken(HoldfastError):  # noqa: N818
    """The worker cannot continue: its loop or its lease-extending thread has died, or a handler is stuck.

    A process that runs only this worker should exit non-zero.
    """


class Worker:
    """Claims jobs and runs their handlers until it is stopped.

    Subclass it and override `process` to replace the call of the task's handler.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: list[Task],
        settings: WorkerConfig,
        *,
        worker_id: str | None = None,
        queues: tuple[str, ...] | None = None,
        retention: Retention | None = None,
        stuck_grace: float = 10.0,
        until_idle: bool = False,
    ) -> None:
        if not tasks:
            raise ConfigError("this worker has no tasks: register tasks with @app.task before it runs")
        self.settings = settings
        self.worker_id = incarnation(worker_id)
        self.queues = None if queues is None else tuple(check_name("queue", queue) for queue in queues)
        self._backend = backend
        self._stuck_grace = stuck_grace
        self.limits: DeclaredLimits = {}
        self.supervisor_id: str | None = None
        """The supervisor that started this process, for the list of workers."""
        self.owns_process = False
        """Whether a stuck handler ends the process; otherwise only `run` raises `WorkerBroken`."""
        self.declared: Declarations | None = None
        """The schedules that the code declares; None if this worker leaves all schedules to others."""
        self.hooks = Hooks()
        """What observes this worker: those of its app, if an app has made it."""
        self._lease = timedelta(seconds=settings.lease)
        batches = {task.name: BatchSize(task.batch, task.linger) for task in tasks if task.batch is not None}
        self._machine = Machine(settings, batches)
        self._is_custom = type(self).process is not Worker.process
        if self._is_custom and batches:
            raise ConfigError(
                f"{type(self).__name__}.process runs one job at a time, and task {next(iter(batches))!r} runs in "
                "batches: leave it to another worker"
            )
        self._plans = {
            task.name: custom_plan_for(task, self.process) if self._is_custom else plan_for(task) for task in tasks
        }
        self._task_names = tuple(self._plans)
        self._isolates = all(plan.isolates for plan in self._plans.values())
        self._calls = StoreCalls(
            self._machine,
            lambda: self._backend.jobs,
            lambda: self._backend.insight,
            settings,
            request=self._request,
            retention=retention or Retention(),
            until_idle=until_idle,
            ended=self._call_ended,
            hooks=lambda: self.hooks,
        )
        self.turned_at: float | None = None
        """When it last decided what to do, by the monotonic clock; None before the first time."""
        self.keeper: LeaseKeeper | None = None
        """The thread that extends leases, while it runs."""
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notified = False
        self._broken: BaseException | None = None
        self._left_stuck = False  # whether the lease of a stuck handler is left to expire

    async def process(self, job: LeasedJob, ctx: Context) -> Any:
        """Run one job; override this in a subclass (`async def`, or a plain method to run in a thread).

        Its return value is the job's result, its exception is treated as the handler's.
        """
        args, kwargs = self._plans[job.task].task.signature.decode(job.payload)
        context = self._plans[job.task].task.signature.context
        if context is not None:
            kwargs[context] = ctx
        result = self._plans[job.task].task.handler(*args, **kwargs)
        return await result if asyncio.iscoroutine(result) else result

    @property
    def left(self) -> Outstanding | None:
        """The jobs that were left when a worker in until-empty mode ended."""
        return self._calls.left

    def status(self) -> Status:
        """Return a snapshot: the phase, running and waiting jobs, totals."""
        return self._machine.status()

    def stop(self) -> None:
        """Drain; a second call releases all jobs now. Callable from any thread."""
        loop = self._loop
        if loop is None:
            self._machine.stop(time.monotonic())
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._machine.stop(time.monotonic())
        self._wake()

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Run until stopped, or until empty; raise `WorkerBroken` when it cannot continue."""
        await open_with_limits(self._backend, self.limits)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        holdings = self._machine.holdings
        registered = asyncio.Event()
        log_work(self.hooks)
        if self.hooks.middleware:
            self._plans = {name: replace(plan, ends_at_once=False) for name, plan in self._plans.items()}
        reports = AttemptReports(self.hooks, self.worker_id)
        lease_reports = LeaseReports(self.hooks, self.worker_id, self._machine)
        attempts = Attempts(
            self._backend,
            holdings,
            self._plans,
            context=lambda job: Context(job, self._backend, lease=self._lease, keeper=holdings.of(job)),
            children=ChildPool(
                lease=self._lease, limit=max(1, self.settings.concurrency), store=self._backend.full_url
            ),
            ended=lambda job, outcome: self._ended(attempts, job, outcome),  # pyright: ignore[reportUnknownLambdaType]
            broke=self._break,
            reports=reports,
            middleware=self.hooks.middleware,
            batches=BatchAttempts(
                self._backend,
                holdings,
                reports=reports,
                middleware=self.hooks.middleware,
                lease=self._lease,
                ended=self._batch_ended,
                broke=self._break,
            ),
        )
        keeper = LeaseKeeper(
            holdings,
            open_extender=self._backend.extender,
            heartbeat=self._heartbeat,
            lease=self._lease,
            limits=attempts.limits,
            stuck_grace=self._stuck_grace,
            owns_process=self.owns_process,
            lost=lambda leases: self._from_thread(lambda: lease_reports.lost(leases)),
            cancel_asked=lambda leases: self._from_thread(lambda: self._machine.cancel_asked(time.monotonic(), leases)),
            died=lambda error: self._from_thread(lambda: self._keeper_died(error, attempts)),
            turned=lambda: self._from_thread(registered.set),
            extended=lease_reports.of_thread(self._from_thread),
        )
        unlisten = self._backend.notifier.listen(self._on_notification)
        keeper.start()
        self.keeper = keeper
        exit_ = None
        try:
            await self._first_heartbeat(registered)
            self._calls.warn_of_unknown_queues({plan.task.queue for plan in self._plans.values()})
            with quick_switches():
                async with firing(lambda: self._backend.schedules, self.declared, self._task_names, self._break):
                    exit_ = await self._turn_until_exit(attempts)
            return exit_
        finally:
            await uncancellable(self._wind_up(attempts, keeper, unlisten, releases=exit_ is None))

    async def _wind_up(
        self, attempts: Attempts, keeper: LeaseKeeper, unlisten: Callable[[], None], *, releases: bool
    ) -> None:
        """End everything that was started; if the machine did not decide the end, try to release all leases first."""
        try:
            unlisten()
            if releases:
                await self._release_all(attempts)
        finally:
            try:
                await attempts.close()
                await self._calls.finished()
            finally:
                self.keeper = None
                await asyncio.to_thread(keeper.close)  # it may be waiting for the store
        await self._deregister()
        await self.hooks.settle()

    async def _release_all(self, attempts: Attempts) -> None:
        """Flush the buffered finishes and release the rest, within a timeout; other leases expire."""
        now = time.monotonic()
        self._machine.stop(now)
        self._machine.stop(now)
        try:
            async with asyncio.timeout(2 * self.settings.abort_grace + _RELEASE_TIMEOUT):
                await self._turn_until_exit(attempts, broken_too=True)
        except TimeoutError:
            _logger.warning(
                "this worker ends with %d unreleased jobs; their leases will expire", len(self._machine.holdings)
            )

    async def _first_heartbeat(self, registered: asyncio.Event) -> None:
        """Wait for the first heartbeat, or its failure: a worker is listed before it claims."""
        changed = self._changed
        while not registered.is_set() and self._broken is None and changed is not None:
            changed.clear()
            await changed.wait()

    async def _turn_until_exit(self, attempts: Attempts, *, broken_too: bool = False) -> Exit:
        changed = self._changed
        assert changed is not None  # noqa: S101 - set by run
        machine = self._machine
        while True:
            if self._broken is not None and not broken_too:
                message = f"this worker cannot continue: {type(self._broken).__name__}: {self._broken}"
                raise WorkerBroken(message) from self._broken
            changed.clear()
            now = self.turned_at = time.monotonic()
            if self._notified:
                self._notified = False
                machine.woken(now)
            decision = machine.decide(now)
            self._calls.carry_out(decision)
            for job, why in decision.abort:
                attempts.abort(job, why)
            if decision.exit is not None:
                return decision.exit
            if self._begin_jobs(attempts, now):
                await asyncio.sleep(0)
            else:
                await pause(changed, decision.wait)

    def _begin_jobs(self, attempts: Attempts, now: float) -> bool:
        """Begin jobs while slots are free; return whether to decide again at once."""
        if self._machine.jobs.forming:
            while batch := self._machine.take_batch(now):
                attempts.begin_batch(batch)
        take, ended, begin = self._machine.take, self._machine.ended, attempts.start
        until = now + _SLICE
        any_ended = False
        while (job := take()) is not None:
            outcome = begin(job, now)
            if outcome is RUNNING:
                continue
            any_ended = True
            now = monotonic()
            if ended(now, job, outcome) or now > until:
                return True
        return any_ended

    # --- events -----------------------------------------------------------------------------------------------

    def _request(self, limit: int) -> ClaimRequest:
        return ClaimRequest(
            worker_id=self.worker_id,
            tasks=self._task_names,
            limit=limit,
            lease=self._lease,
            queues=self.queues,
            isolates=self._isolates,
        )

    def _call_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._break(error)
        self._wake()

    def _ended(self, attempts: Attempts, job: LeasedJob, outcome: Outcome | None) -> None:
        following = self._machine.ended_next(now := monotonic(), job, outcome)
        begun = None if following is None else attempts.start(following, now)
        if following is None or begun is not RUNNING:
            self._wake()
        if following is not None and begun is not RUNNING:
            self._machine.ended(now, following, begun)

    def _batch_ended(
        self, jobs: Sequence[LeasedJob], outcomes: Sequence[Outcome | None], written: Sequence[Finish]
    ) -> None:
        self._machine.batch_ended(time.monotonic(), jobs, outcomes, written)
        self._wake()

    def _on_notification(self) -> None:
        """Process a notification, in any thread; many count as one."""
        if not self._notified:
            self._notified = True
            self._from_thread(self._wake)

    def _from_thread(self, action: Callable[[], None]) -> None:
        """Run an action in the event loop, from another thread."""

        def act() -> None:
            action()
            self._wake()

        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(act)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def _keeper_died(self, error: BaseException, attempts: Attempts) -> None:
        """Break. Jobs of stuck handlers are not released: they would run elsewhere while they still run here."""
        if isinstance(error, HandlerStuck):
            stuck = [job.lease for job in error.jobs if (job.seq, job.fence) in attempts.limits]
            self._left_stuck = bool(stuck)
            self._machine.lost(time.monotonic(), stuck)
        self._break(error)

    def _break(self, error: BaseException | None) -> None:
        self._broken = self._broken or error
        self._wake()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _deregister(self) -> None:
        """Deregister, unless leases must be left to expire: deregistering would revoke them."""
        try:
            await self._calls.release_unknown_claim()
            if self._left_stuck or len(self._machine.holdings) or self._machine.status().totals.abandoned:
                return
            await self._backend.jobs.rescue_worker(self.worker_id, "it has ended", 1)
        except TRANSIENT as error:
            _logger.warning("this worker could not be deregistered: %s", error)

    def _heartbeat(self) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.queues,
            concurrency=self.settings.concurrency,
            lease=self._lease,
            running=len(self._machine.holdings),
            supervisor_id=self.supervisor_id,
            tasks=self._task_names,
        )
