"""Runs the handlers of this worker: begins them, applies time limits, aborts them and reports their ends.

Where a handler runs:

```text
   async def            in the event loop; one that never suspends runs to its end at once, without an asyncio task
   plain function       in a thread
   executor="process"   in a child process
   batch=…              for many jobs at once, in the event loop or in a thread: see `batch_attempts`
   lost before          in a child process too, if a child can import it: no other job shares the process
```
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from enum import Enum
from functools import partial
from typing import Any, Final, Literal

from holdfast.errors import TransactionConflict
from holdfast.hooks.middleware import HandlerCall, Middlewares
from holdfast.jobs.context import Context
from holdfast.jobs.run import (
    is_completed,
    outcome_of_error,
    outcome_of_timeout,
    outcome_of_value,
    repeated,
)
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import COMPLETED, Outcome
from holdfast.runtime.executor import Executor
from holdfast.runtime.handler_runner import HandlerRunner, TimeLimitReached
from holdfast.store.backend import Backend
from holdfast.store.job_rows import Key
from holdfast.worker.attempt_reports import AttemptReports
from holdfast.worker.batch_attempts import BatchAttempts
from holdfast.worker.decision import Why
from holdfast.worker.endings import CANCELLED_AS_ASKED, cancelled_by_itself, once_settled
from holdfast.worker.execution import Execution
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.job_child.pool import ChildPool

_logger = logging.getLogger("holdfast.worker")


class _Going(Enum):
    """One member, so that `is` distinguishes it from every outcome, also for type checkers."""

    ON = "the attempt is running; its end is reported later"


RUNNING: Final = _Going.ON
Running = Literal[_Going.ON]


class Attempts:
    """Runs attempts and calls `ended` once for each that did not end at once."""

    def __init__(  # noqa: PLR0913 - what attempts need, by name
        self,
        backend: Backend,
        held: HeldLeases,
        plans: dict[str, Execution],
        *,
        context: Callable[[LeasedJob], Context],
        children: ChildPool,
        ended: Callable[[LeasedJob, Outcome | None], None],
        broke: Callable[[BaseException], None],
        reports: AttemptReports,
        middleware: Middlewares,
        batches: BatchAttempts | None = None,
    ) -> None:
        self._backend = backend
        self._held = held
        self._make_context = context
        self._plans = plans
        self._children = children
        self._ended = ended
        self._broke = broke
        self.reports = reports
        self._middleware = middleware
        self._handlers = HandlerRunner[LeasedJob]("holdfast-handler", clock=time.monotonic)
        self._batches = batches
        if batches is not None:
            batches.handlers = self._handlers
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._contexts: dict[Key, Context] = {}
        self._why: dict[Key, Why] = {}
        self._in_child: set[Key] = set()
        self.limits = self._handlers.limits
        """When the time limit of each attempt in this process ends; read by the lease-extending thread."""

    def begin(self, job: LeasedJob, now: float) -> Outcome | Running:
        """Begin an attempt; return its outcome if it ended at once."""
        plan = self._plans[job.task]
        if not plan.ends_at_once or job.lost or job.timeout is not None:
            self._spawn(plan, job)
            return RUNNING
        # A coroutine that never suspends runs to its end here, with separate context variables.
        try:
            args, kwargs = plan.decode(job.payload)
            copy_context().run(plan.handler(*args, **kwargs).send, None)
        except StopIteration as stop:
            if stop.value is None:
                return COMPLETED
            return self.reports.ended(job, outcome_of_value(plan.task, job, stop.value), now)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome, SystemExit too
            return self.reports.ended(job, self._failed(plan, job, error), now)
        message = f"task {job.task} suspended though it has no await"
        raise RuntimeError(message)

    @property
    def start(self) -> Callable[[LeasedJob, float], Outcome | Running]:
        """What begins an attempt, and reports as much of it as is wanted."""
        return self.begin_observed if self.reports.wants_all else self.begin

    def begin_observed(self, job: LeasedJob, now: float) -> Outcome | Running:
        """Begin an attempt as `begin` does, and report its start and every end."""
        self.reports.started(job)
        outcome = self.begin(job, now)
        return self.reports.ended(job, COMPLETED, now) if outcome is COMPLETED else outcome

    def _failed(self, plan: Execution, job: LeasedJob, error: BaseException) -> Outcome:
        """Return the outcome of a handler that raised; the exception is kept for the report."""
        self.reports.raised(job, error)
        return outcome_of_error(plan.task, job, error)

    def begin_batch(self, jobs: Sequence[LeasedJob]) -> None:
        """Begin one run of a handler for many jobs."""
        if self._batches is not None:
            for job in jobs if self.reports.wants_all else ():
                self.reports.started(job)
            self._batches.begin(self._plans[jobs[0].task], jobs)

    def _spawn(self, plan: Execution, job: LeasedJob) -> None:
        key = (job.seq, job.fence)
        limit = job.timeout if job.timeout is not None else plan.task.timeout
        if plan.executor is Executor.PROCESS or (job.lost > 0 and plan.isolates):
            self._in_child.add(key)
            work = self._run_in_child(plan, job, limit)
        elif self._batches is not None and plan.task.batch is not None:
            self._batches.begin(plan, [job])
            return
        else:
            run = self._run_in_thread if plan.executor is Executor.THREAD else self._run_in_loop
            work = repeated(
                lambda: run(plan, job, limit),
                may_repeat=lambda: key not in self._why and not is_completed(self._contexts.get(key)),
                failed=lambda conflict: self._after_conflict(plan, job, key, conflict),
            )
        running = asyncio.create_task(self._to_the_end(job, key, work), name=f"holdfast job {job.id}")
        running.add_done_callback(self._ending.discard)
        self._tasks[key] = running

    async def _to_the_end(self, job: LeasedJob, key: Key, work: Coroutine[Any, Any, Outcome | None]) -> None:
        began = time.monotonic()
        try:
            outcome = await work
        except asyncio.CancelledError:
            outcome = self._broken_off(job, key)
        except BaseException as error:  # noqa: BLE001 - not the handler's error: this worker cannot begin an attempt
            self._broke(error)
            return
        # The handler has ended: from here on it cannot be aborted, and has no time limit.
        self._ending.add(self._tasks.pop(key))
        self._in_child.discard(key)
        is_aborted = self._why.pop(key, None) is not None and outcome is None
        context = self._contexts.pop(key, None)
        if outcome is not None:
            outcome = await once_settled(context, self._backend, outcome)
        if outcome is None:  # completed in a transaction, here or in a child process, which cannot know of waiters
            self._backend.notifier.notify_ends()
        if outcome is None:  # without an outcome its own transaction has completed it, unless it was aborted
            self.reports.settled(job, began, is_aborted=is_aborted)
        else:
            self.reports.ended(job, outcome, began)
        self._ended(job, outcome)

    def _broken_off(self, job: LeasedJob, key: Key) -> Outcome | None:
        """Return the outcome of a handler that was cancelled."""
        why = self._why.get(key)
        if why is None:
            return self._failed(self._plans[job.task], job, cancelled_by_itself())
        return CANCELLED_AS_ASKED if why is Why.CANCEL_ASKED else None

    def _after_conflict(
        self, plan: Execution, job: LeasedJob, key: Key, conflict: TransactionConflict
    ) -> Outcome | None:
        return self._broken_off(job, key) if key in self._why else self._failed(plan, job, conflict)

    def _context(self, plan: Execution, job: LeasedJob) -> Context | None:
        if not plan.takes_context:
            return None
        key = (job.seq, job.fence)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._make_context(job)
        context.begun()
        return context

    def _bound(self, plan: Execution, job: LeasedJob) -> tuple[Callable[[], Any], HandlerCall | None]:
        """Return the handler with its arguments, and what the middleware sees of the call if there is any."""
        args, kwargs = plan.arguments(job, self._context(plan, job))
        run = partial(plan.handler, *args, **kwargs)
        if not self._middleware:
            return run, None
        return run, HandlerCall("task", job.task, job.attempt, args, kwargs, jobs=(job,))

    async def _run_in_loop(self, plan: Execution, job: LeasedJob, limit: float | None) -> Outcome:
        task = plan.task
        try:
            run, call = self._bound(plan, job)
            if call is not None:
                run = partial(self._middleware.around, call, run)
            value = await self._handlers.in_loop(run, job, (job.seq, job.fence), limit)
        except TimeLimitReached:
            return outcome_of_timeout(task, job, limit or 0.0)
        except (asyncio.CancelledError, TransactionConflict):
            raise
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            return self._failed(plan, job, error)
        return outcome_of_value(task, job, value)

    async def _run_in_thread(self, plan: Execution, job: LeasedJob, limit: float | None) -> Outcome:
        try:
            run, call = self._bound(plan, job)
        except Exception as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            return self._failed(plan, job, error)

        def late() -> None:
            _logger.warning(
                "job %s (%s) is past its time limit of %g s; its thread cannot be stopped and keeps its slot",
                job.id, job.task, limit,
            )  # fmt: skip

        def start(run: Callable[[], Any]) -> Awaitable[Any]:
            return self._handlers.in_thread(run, job, (job.seq, job.fence), limit, late=late)

        # Without middleware a refused thread breaks the worker; with it, it fails the attempt.
        running = start(run) if call is None else self._middleware.around_thread(call, run, start)
        try:
            value = await running
        except (asyncio.CancelledError, TransactionConflict):
            raise
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            return self._failed(plan, job, error)
        return outcome_of_value(plan.task, job, value)

    async def _run_in_child(self, plan: Execution, job: LeasedJob, limit: float | None) -> Outcome | None:
        return await self._children.run(plan.task, job, timeout=limit, keeper=self._held.of(job))

    def abort(self, job: LeasedJob, why: Why) -> None:
        """Ask a handler to stop: set its signal, and cancel it if it can be cancelled."""
        key = (job.seq, job.fence)
        running = self._tasks.get(key)
        if running is None:
            if self._batches is not None:
                self._batches.abort(job, why)
            return
        self._why[key] = why
        context = self._contexts.get(key)
        if context is not None and why is Why.LEASE_LOST:
            context.lease_lost.set()
        if context is not None and why is Why.CANCEL_ASKED:
            context.cancel_asked.set()
        if key in self._in_child:
            self._children.abort(job, why)
        elif self._plans[job.task].executor is Executor.LOOP:
            running.cancel()

    async def close(self) -> None:
        """End the children; threads that still run end with the process."""
        for running in [*self._tasks.values(), *self._ending]:
            running.cancel()
        if self._batches is not None:
            self._batches.close()
        await self._children.close()
        self._handlers.close()
