"""Runs batches: one call of the handler for many jobs, each of which ends by itself.

```text
   begin ─▶ the handler runs ─┬─ returns ──────────▶ every call completes, or ends as the handler decided
                 ▲            ├─ raises ───────────▶ the attempts fail, and the jobs run again, each alone
                 │            ├─ transaction refused because a lease is stale
                 └────────────┘  again, without the lost jobs; no attempt is used
```

A cancel request or a lost lease of one job only sets a signal of its call. The handler is cancelled when that holds for
all jobs, and when the worker shuts down.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.errors import LeaseLost, TransactionConflict
from holdfast.hooks.middleware import HandlerCall, Middlewares
from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.run import outcome_of_error, repeated
from holdfast.jobs.run_batch import calls_of_jobs, check_returned
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed, Outcome
from holdfast.runtime.executor import Executor
from holdfast.runtime.handler_runner import HandlerRunner
from holdfast.store.backend import Backend
from holdfast.store.job_rows import Key
from holdfast.store.values import Finish
from holdfast.store.verbs.finish import only_completes
from holdfast.worker.attempt_reports import AttemptReports
from holdfast.worker.decision import Why
from holdfast.worker.endings import CANCELLED_AS_ASKED, cancelled_by_itself
from holdfast.worker.execution import Execution
from holdfast.worker.held_leases import HeldLeases

_logger = logging.getLogger("holdfast.worker")
BatchEnded = Callable[[Sequence[LeasedJob], Sequence[Outcome | None], Sequence[Finish]], None]


class RunningBatch:
    """A batch whose handler runs."""

    def __init__(self, plan: Execution, jobs: Sequence[LeasedJob]) -> None:
        self.plan = plan
        self.jobs = jobs
        self.left = list(jobs)
        """The jobs that have not ended."""
        self.outcomes: dict[int, Outcome | None] = {}
        self.why: dict[Key, Why] = {}
        self.context: BatchContext[Any] | None = None
        self.running: asyncio.Task[None] | None = None

    @property
    def written(self) -> Sequence[Finish]:
        """The outcomes that its transaction has committed."""
        return self.context.effect.written if self.is_committed and self.context is not None else ()

    @property
    def is_committed(self) -> bool:
        """Whether its transaction has committed."""
        return self.context is not None and self.context.effect.is_committed

    def begins(self, context: BatchContext[Any]) -> None:
        """Note the context of the next run of the handler, and pass on to it what was asked before."""
        self.context = context
        if self.why:
            for call in context.calls_given:
                self._signal(call.job)

    def abort(self, job: LeasedJob, why: Why) -> bool:
        """Set the signal of a call; return whether no call is left that is to run on."""
        self.why[job.seq, job.fence] = why
        self._signal(job)
        return why is Why.SHUTDOWN or all((one.seq, one.fence) in self.why for one in self.left)

    def _signal(self, job: LeasedJob) -> None:
        why = self.why.get((job.seq, job.fence))
        for call in () if self.context is None else self.context.calls_given:
            if call.job is job and why is Why.LEASE_LOST:
                call.lease_lost.set()
            if call.job is job and why is Why.CANCEL_ASKED:
                call.cancel_asked.set()

    def end(self, outcomes: dict[int, Outcome | None]) -> None:
        """Note outcomes; those jobs have ended."""
        if outcomes:
            self.outcomes |= outcomes
            self.left = [job for job in self.left if job.seq not in outcomes]

    def has(self, job: LeasedJob) -> bool:
        """Whether this is one of its jobs."""
        return any(one is job for one in self.jobs)


class BatchAttempts:
    """Runs the batches of a worker and calls `ended` once for each."""

    def __init__(
        self,
        backend: Backend,
        held: HeldLeases,
        *,
        reports: AttemptReports,
        middleware: Middlewares,
        lease: timedelta,
        ended: BatchEnded,
        broke: Callable[[BaseException], None],
    ) -> None:
        self._backend = backend
        self._held = held
        self._reports = reports
        self._middleware = middleware
        self.handlers = HandlerRunner[LeasedJob]("holdfast-handler", clock=time.monotonic)
        """Runs the handlers; shared with those of single jobs."""
        self._lease = lease
        self._ended = ended
        self._broke = broke
        self._batches: set[RunningBatch] = set()

    def begin(self, plan: Execution, jobs: Sequence[LeasedJob]) -> None:
        """Begin a batch."""
        batch = RunningBatch(plan, jobs)
        self._batches.add(batch)
        name = f"holdfast batch of {len(jobs)} jobs, the first {jobs[0].id}"
        batch.running = asyncio.create_task(self._to_the_end(batch), name=name)

    async def _to_the_end(self, batch: RunningBatch) -> None:
        began = time.monotonic()
        try:
            while batch.left:
                await repeated(
                    lambda: self._once(batch),
                    may_repeat=lambda: not batch.why and not batch.is_committed,
                    failed=lambda conflict: self._after_conflict(batch, conflict),
                )
        except asyncio.CancelledError:
            batch.end(self._broken_off(batch))
        except BaseException as error:  # noqa: BLE001 - not the handler's error: this worker cannot begin a batch
            self._broke(error)
            return
        self._batches.discard(batch)
        if batch.is_committed:
            self._backend.notifier.notify_ends()
        self._report(batch, began)
        self._ended(batch.jobs, [batch.outcomes[job.seq] for job in batch.jobs], batch.written)

    def _report(self, batch: RunningBatch, began: float) -> None:
        """Report the end of each job."""
        wants_all = self._reports.wants_all
        if batch.is_committed and not wants_all and only_completes(batch.written):
            return
        written = {finish.lease.seq: finish.outcome for finish in batch.written}
        for job in batch.jobs:
            outcome = batch.outcomes[job.seq] or written.get(job.seq)
            if outcome is None:
                self._reports.settled(job, began, is_aborted=True)
            elif wants_all or type(outcome) is not Completed:
                self._reports.ended(job, outcome, began)

    async def _once(self, batch: RunningBatch) -> None:
        """Run the handler once."""
        task = batch.plan.task
        calls, unread = calls_of_jobs(task, batch.left)
        batch.end({**unread})
        if not calls:
            return
        context: BatchContext[Any] = BatchContext(
            calls, self._backend, lease=self._lease, keeper=self._held.of_many(batch.left)
        )
        batch.begins(context)
        raised: BaseException | None = None
        try:
            check_returned(task, await self._call(batch, context))
        except (asyncio.CancelledError, TransactionConflict):
            raise
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            raised = error
        finally:
            context.close()
        if context.effect.found_lost and not context.effect.is_committed:
            batch.end(_lost(batch.plan, context))
            return
        self._end(batch, context, raised)

    def _end(self, batch: RunningBatch, context: BatchContext[Any], raised: BaseException | None) -> None:
        outcomes = context.outcomes(raised)
        if raised is not None and context.effect.is_committed:
            task = batch.plan.task.name
            message = "a batch of %d jobs (%s) was committed, and then its handler raised"
            _logger.error(message, len(outcomes), task, exc_info=raised)
        elif raised is not None:
            for call in context.calls_given:
                if not call.is_decided:
                    self._reports.raised(call.job, raised)
        pairs = zip(context.calls_given, outcomes, strict=True)
        batch.end({call.job.seq: outcome for call, outcome in pairs})

    async def _call(self, batch: RunningBatch, context: BatchContext[Any]) -> object:
        plan, (first, *others) = batch.plan, batch.left
        limits = [plan.task.timeout if job.timeout is None else job.timeout for job in batch.left]
        limit = min((one for one in limits if one is not None), default=None)
        key = (first.seq, first.fence)
        handlers = self.handlers
        run: Callable[[], Any] = partial(plan.handler, context, context.calls)
        call = None
        if self._middleware:
            call = HandlerCall("task", plan.task.name, first.attempt, [context, context.calls], {}, tuple(batch.left))
        if limit is not None:  # for the thread that finds stuck handlers: all these jobs have the limit
            handlers.limits.update({(job.seq, job.fence): (time.monotonic() + limit, job) for job in others})
        try:
            if plan.executor is Executor.THREAD:
                start = partial(self._start, batch, first, key, limit)
                return await (start(run) if call is None else self._middleware.around_thread(call, run, start))
            if call is not None:
                run = partial(self._middleware.around, call, run)
            return await handlers.in_loop(run, first, key, limit)
        finally:
            for job in others if limit is not None else ():
                handlers.limits.pop((job.seq, job.fence), None)

    def _start(
        self, batch: RunningBatch, job: LeasedJob, key: Key, limit: float | None, run: Callable[[], Any]
    ) -> Awaitable[Any]:
        return self.handlers.in_thread(run, job, key, limit, late=lambda: _log_late(batch))

    def _after_conflict(self, batch: RunningBatch, conflict: TransactionConflict) -> None:
        if batch.why or batch.context is None:
            batch.end(self._broken_off(batch))
            return
        self._end(batch, batch.context, conflict)

    def _broken_off(self, batch: RunningBatch) -> dict[int, Outcome | None]:
        """Return the outcomes of a handler that was cancelled."""
        if batch.is_committed or batch.context is None:
            return dict.fromkeys((job.seq for job in batch.left), None)
        if not batch.why:
            own = batch.context.outcomes(cancelled_by_itself())
            return {call.job.seq: outcome for call, outcome in zip(batch.context.calls_given, own, strict=True)}
        keys = {job.seq: batch.why.get((job.seq, job.fence)) for job in batch.left}
        return {seq: CANCELLED_AS_ASKED if why is Why.CANCEL_ASKED else None for seq, why in keys.items()}

    def abort(self, job: LeasedJob, why: Why) -> None:
        """Set the signal of a call; cancel the handler if no call is left that is to run on."""
        batch = next((batch for batch in self._batches if batch.has(job)), None)
        if batch is None or not batch.abort(job, why):
            return
        if batch.plan.executor is Executor.LOOP and batch.running is not None:
            batch.running.cancel()

    def close(self) -> None:
        """Cancel the batches that still run; threads end with the process."""
        for batch in self._batches:
            if batch.running is not None:
                batch.running.cancel()


def _lost(plan: Execution, context: BatchContext[Any]) -> dict[int, Outcome | None]:
    """Return outcomes for the jobs whose leases were found stale; the store refuses them, and so they count as lost."""
    error = LeaseLost("the lease of this job was lost before its batch could write")
    lost = [call.job for call in context.calls_given if call.lease_lost.is_set()]
    return {job.seq: outcome_of_error(plan.task, job, error) for job in lost}


def _log_late(batch: RunningBatch) -> None:
    _logger.warning(
        "a batch of %d jobs (%s), the first %s, is past its time limit; its thread cannot be stopped and keeps a slot",
        len(batch.jobs), batch.plan.task.name, batch.jobs[0].id,
    )  # fmt: skip
