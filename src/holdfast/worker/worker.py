"""The worker: the decision machine with hands.

It calls the store as the machine decides, runs handlers, and reports back what happened. The claim, the flush and the
upkeep are each one call in flight at a time, beside the handlers: claim, handle and finish overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.jobs.context import Context
from holdfast.jobs.task import Task
from holdfast.model.job import Lease, LeasedJob
from holdfast.model.names import check_name
from holdfast.model.outcome import Outcome
from holdfast.runtime.failpoint import failpoint
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, Outstanding, Retention, WorkerBeat
from holdfast.worker.access import GAP_PER_LEASE
from holdfast.worker.attempts import RUNNING, Attempts
from holdfast.worker.child_pool import ChildPool
from holdfast.worker.decision import Decision, Exit, Status
from holdfast.worker.identity import incarnation
from holdfast.worker.keeper import Keeper
from holdfast.worker.machine import Machine
from holdfast.worker.plans import custom_plan_for, plan_for
from holdfast.worker.settings import Settings
from holdfast.worker.surroundings import Surroundings
from holdfast.worker.switching import quick_switches

T = TypeVar("T")
_logger = logging.getLogger("holdfast.worker")
monotonic = time.monotonic
_SLICE = 0.002  # seconds of handlers between two looks at what the store has answered
_PASSING = (StoreUnavailable, OutcomeUnknown)


class WorkerBroken(HoldfastError):  # noqa: N818
    """The worker's own loop or extending thread has died of an unexpected error; the process is to end non-zero."""


class Worker:
    """Claims jobs and runs their handlers until it is stopped.

    Subclass it and override `process` to do something else with each job than calling its task's handler.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: list[Task],
        settings: Settings,
        *,
        worker_id: str | None = None,
        queues: tuple[str, ...] | None = None,
        retention: Retention | None = None,
        stuck_grace: float = 10.0,
        until_idle: bool = False,
    ) -> None:
        if not tasks:
            message = (
                "this worker knows no task, so it would claim nothing: register tasks with @app.task before it runs"
            )
            raise ConfigError(message)
        self.settings = settings
        self.worker_id = incarnation(worker_id)
        self.queues = None if queues is None else tuple(check_name("queue", queue) for queue in queues)
        self._backend = backend
        self._until_idle = until_idle
        self._retention = retention or Retention()
        self._stuck_grace = stuck_grace
        self._lease = timedelta(seconds=settings.lease)
        self._late = settings.lease * GAP_PER_LEASE
        self._machine = Machine(settings)
        self._is_custom = type(self).process is not Worker.process
        self._plans = {
            task.name: custom_plan_for(task, self.process) if self._is_custom else plan_for(task) for task in tasks
        }
        self._task_names = tuple(self._plans)
        self._isolates = not self._is_custom and all(task.reference is not None for task in tasks)
        self._calls: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hint = False
        self._broken: BaseException | None = None
        self.left: Outstanding | None = None
        """What was left when an until-empty worker ended."""

    async def process(self, job: LeasedJob, ctx: Context) -> Any:
        """Do one job; override this in a subclass (`async def`, or a plain method to run in a thread).

        What it returns is the job's result, what it raises is treated as a handler's exception would be.
        """
        args, kwargs = self._plans[job.task].task.signature.decode(job.payload)
        context = self._plans[job.task].task.signature.context
        if context is not None:
            kwargs[context] = ctx
        result = self._plans[job.task].task.handler(*args, **kwargs)
        return await result if asyncio.iscoroutine(result) else result

    def status(self) -> Status:
        """Return where the worker stands: its phase, what runs, what waits, what became of the rest."""
        return self._machine.status()

    def stop(self) -> None:
        """Ask the worker to drain; a second time: to give everything back now. Callable from any thread."""
        loop = self._loop
        if loop is None:
            self._machine.stop(time.monotonic())
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._machine.stop(time.monotonic())
        self._nudge()

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Run until stopped, or until empty; raise `WorkerBroken` when it cannot go on."""
        await self._backend.open()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        holdings = self._machine.holdings
        reported = asyncio.Event()
        attempts = Attempts(
            Surroundings(self._backend, self._lease, holdings),
            self._plans,
            children=ChildPool(lease=self._lease, limit=max(1, self.settings.concurrency)),
            ended=self._ended,
            broke=self._break,
        )
        keeper = Keeper(
            holdings,
            open_extender=self._backend.extender,
            beat=self._beat,
            lease=self._lease,
            limits=attempts.limits,
            stuck_grace=self._stuck_grace,
            lost=lambda leases: self._from_thread(lambda: self._machine.lost(time.monotonic(), leases)),
            cancel_asked=lambda leases: self._from_thread(lambda: self._machine.cancel_asked(time.monotonic(), leases)),
            died=lambda error: self._from_thread(lambda: self._break(error)),
            turned=lambda: self._from_thread(reported.set),
        )
        unlisten = self._backend.notifier.listen(self._woken)
        keeper.start()
        try:
            await self._reported(reported)
            with quick_switches():
                return await self._turn_until_exit(attempts)
        finally:
            unlisten()
            await attempts.close()
            await self._end_calls()
            keeper.close()
            await self._forget()

    async def _reported(self, reported: asyncio.Event) -> None:
        """Wait until the store has heard of this worker, or could not: whoever holds jobs is on the list."""
        changed = self._changed
        while not reported.is_set() and self._broken is None and changed is not None:
            changed.clear()
            await changed.wait()

    async def _turn_until_exit(self, attempts: Attempts) -> Exit:
        changed = self._changed
        assert changed is not None  # noqa: S101 - set by run
        machine = self._machine
        while True:
            if self._broken is not None:
                message = f"this worker cannot go on: {type(self._broken).__name__}: {self._broken}"
                raise WorkerBroken(message) from self._broken
            changed.clear()
            now = time.monotonic()
            if self._hint:
                self._hint = False
                machine.woken(now)
            decision = machine.decide(now)
            self._carry_out(decision, attempts)
            if decision.exit is not None:
                return decision.exit
            if self._begin_jobs(attempts, now):
                await asyncio.sleep(0)
            else:
                await self._pause(changed, decision.wait)

    def _begin_jobs(self, attempts: Attempts, now: float) -> bool:
        """Begin jobs while slots are free; True if the machine is to be asked again at once."""
        take, begin, ended = self._machine.take, attempts.begin, self._machine.ended
        until = now + _SLICE
        any_ended = False
        while (job := take()) is not None:
            outcome = begin(job)
            if outcome is RUNNING:
                continue
            any_ended = True
            now = monotonic()
            if ended(now, job, outcome) or now > until:
                return True
        return any_ended

    async def _pause(self, changed: asyncio.Event, wait: float | None) -> None:
        """Wait for an event, or for the time that the machine named, with jitter where it is a poll."""
        if wait is None:
            await changed.wait()
            return
        if wait > 0.1:  # noqa: PLR2004 - short waits are deadlines of our own, only polls are spread
            wait *= 1 - 0.2 * random.random()  # noqa: S311 - jitter
        timer = asyncio.get_running_loop().call_later(wait, changed.set)
        try:
            await changed.wait()
        finally:
            timer.cancel()

    # --- what the machine decides -----------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, attempts: Attempts) -> None:
        if decision.claim:
            self._call(self._claim(decision.claim))
        if decision.flush:
            self._call(self._flush(decision.flush))
        if decision.release_unstarted:
            self._call(self._release(decision.release_unstarted, started=False))
        if decision.release_started:
            self._call(self._release(decision.release_started, started=True))
        for job, why in decision.abort:
            attempts.abort(job, why)
        if decision.promote:
            self._call(self._promote())
        if decision.rescue is not None:
            self._call(self._rescue(decision.rescue))
        if decision.prune:
            self._call(self._prune())
        if decision.check_empty:
            self._call(self._check_empty())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._break(task.exception())
        self._nudge()

    async def _timed(self, call: Awaitable[T]) -> T:
        """Wait for the store's answer; a late one says that others, too, may have waited to extend their leases."""
        sent_at = time.monotonic()
        answer = await call
        if time.monotonic() - sent_at > self._late:
            self._machine.stalled()
        return answer

    async def _claim(self, limit: int) -> None:
        request = ClaimRequest(
            worker_id=self.worker_id,
            tasks=self._task_names,
            limit=limit,
            lease=self._lease,
            queues=self.queues,
            isolates=self._isolates,
        )
        sent_at = time.monotonic()
        try:
            claim = await self._timed(self._backend.jobs.claim(request))
            if claim.jobs:
                failpoint("after_claim")
        except _PASSING as error:
            _logger.warning("claiming failed, trying again: %s", error)
            self._machine.claim_failed(time.monotonic())
        else:
            asked = len(claim.jobs) if claim.is_cut else limit
            self._machine.claimed(time.monotonic(), claim.jobs, asked=asked, sent_at=sent_at)

    async def _flush(self, finishes: list[Finish]) -> None:
        failpoint("before_flush")
        try:
            verdicts = await self._timed(self._backend.jobs.finish(finishes))
            failpoint("after_flush")
        except _PASSING as error:
            _logger.warning("writing %d finished attempts failed, trying again: %s", len(finishes), error)
            self._machine.flush_failed(time.monotonic(), finishes)
        else:
            self._machine.flushed(time.monotonic(), finishes, verdicts)

    async def _release(self, leases: list[Lease], *, started: bool) -> None:
        try:
            await self._timed(self._backend.jobs.release(leases, started=started))
        except _PASSING as error:
            _logger.warning("giving back %d jobs failed: %s", len(leases), error)
            self._machine.release_failed(time.monotonic(), leases)
        else:
            self._machine.released(time.monotonic(), leases)

    async def _promote(self) -> None:
        try:
            promotion = await self._timed(self._backend.jobs.promote(self.settings.promote_limit))
        except _PASSING as error:
            self._upkeep_failed("moving due jobs to ready", error)
        else:
            self._machine.promoted(time.monotonic(), promotion)

    async def _rescue(self, unbroken: timedelta) -> None:
        limit = self.settings.rescue_limit
        try:
            rescued = await self._timed(self._backend.jobs.rescue(unbroken, limit))
        except _PASSING as error:
            self._upkeep_failed("rescuing expired leases", error)
            return
        for job in rescued:
            _logger.warning("job %s (%s) was lost by worker %s: now %s", job.job_id, job.task, job.worker_id, job.state)
        self._machine.rescued(time.monotonic(), len(rescued), asked=limit)

    async def _prune(self) -> None:
        limit = self.settings.prune_limit
        try:
            pruned = await self._timed(self._backend.jobs.prune(self._retention, limit))
        except _PASSING as error:
            self._upkeep_failed("pruning finished jobs", error)
        else:
            self._machine.pruned(time.monotonic(), pruned, limit)

    async def _check_empty(self) -> None:
        try:
            left = await self._timed(self._backend.jobs.outstanding(self._task_names, self.queues))
        except _PASSING as error:
            self._upkeep_failed("looking whether anything is left", error)
            return
        self.left = left
        self._machine.emptiness(time.monotonic(), left.ready == 0 if self._until_idle else left.is_empty)

    def _upkeep_failed(self, what: str, error: HoldfastError) -> None:
        _logger.warning("%s failed, trying again: %s", what, error)
        self._machine.upkeep_failed(time.monotonic())

    # --- what happens -----------------------------------------------------------------------------------------------

    def _ended(self, job: LeasedJob, outcome: Outcome | None) -> None:
        self._machine.ended(time.monotonic(), job, outcome)
        self._nudge()

    def _woken(self) -> None:
        """Take a hint, from any thread; many hints are one."""
        if not self._hint:
            self._hint = True
            self._from_thread(self._nudge)

    def _from_thread(self, action: Callable[[], None]) -> None:
        """Do something on the loop, at the request of another thread."""

        def act() -> None:
            action()
            self._nudge()

        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(act)

    def _nudge(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def _break(self, error: BaseException | None) -> None:
        self._broken = self._broken or error
        self._nudge()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _end_calls(self) -> None:
        if self._calls:
            await asyncio.wait(self._calls)

    async def _forget(self) -> None:
        """Take this worker off the list; what it still holds, if anything, is left to expire."""
        if len(self._machine.holdings):
            return
        try:
            await self._backend.jobs.rescue_worker(self.worker_id, "it has ended", 1)
        except _PASSING as error:
            _logger.warning("this worker could not be taken off the list: %s", error)

    def _beat(self) -> WorkerBeat:
        return WorkerBeat(
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.queues,
            concurrency=self.settings.concurrency,
            lease=self._lease,
            running=len(self._machine.holdings),
        )
