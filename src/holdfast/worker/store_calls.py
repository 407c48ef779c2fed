"""The store calls that the machine decides on: started here, and their results reported to it.

A transient error (the store cannot be reached, or the outcome is unknown) is reported to the machine, which repeats the
call: every verb is safe to repeat. Any other error breaks the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import structs

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import StoreFailure
from holdfast.model.job import Lease
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.reachability import GAP_PER_LEASE
from holdfast.runtime.unknown_queue import unknown_queue
from holdfast.store.insight import Insight
from holdfast.store.jobs import JobStore
from holdfast.store.values import ClaimRequest, Finish, Outstanding, Retention
from holdfast.worker.dead_workers import DeadWorkers
from holdfast.worker.decision import Decision
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.store_reports import StoreReports
from holdfast.worker.unknown_tasks import UnknownTasks

T = TypeVar("T")
_logger = logging.getLogger("holdfast.worker")
TRANSIENT = (StoreUnavailable, OutcomeUnknown)


class StoreCalls:
    """Calls the store concurrently with the handlers; calls `ended` after each call, with the error that broke it."""

    def __init__(  # noqa: PLR0913 - what the calls need, by name
        self,
        machine: Machine,
        store: Callable[[], JobStore],
        insight: Callable[[], Insight],
        settings: WorkerConfig,
        *,
        request: Callable[[int], ClaimRequest],
        retention: Retention,
        until_idle: bool,
        ended: Callable[[BaseException | None], None],
        hooks: Callable[[], Hooks],
    ) -> None:
        self._machine = machine
        self._store = store
        self._settings = settings
        self._late = settings.lease * GAP_PER_LEASE
        self._request = request
        self._retention = retention
        self._until_idle = until_idle
        self._ended = ended
        self._insight = insight
        self._hooks = hooks
        self._failing: str | None = None  # the call that failed last, until one succeeds
        self._dead_workers = DeadWorkers(insight, hooks)
        self._unknown_tasks = UnknownTasks(insight)
        self._reports = StoreReports(hooks, machine.holdings, request)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._last_fence = 0  # the largest fence of a claim whose reply arrived
        self._lost_reply = False  # the reply to a later claim was lost
        self.left: Outstanding | None = None
        """The jobs that were left at the last check for emptiness."""

    def carry_out(self, decision: Decision) -> None:
        """Start every call of a decision."""
        if decision.claim:
            self._begin(self._claim(decision.claim, decision.slots))
        if decision.flush:
            self._begin(self._flush(decision.flush))
        if decision.release_unstarted:
            self._begin(self._release(decision.release_unstarted, started=False))
        if decision.release_started:
            self._begin(self._release(decision.release_started, started=True))
        if decision.promote:
            self._begin(self._promote())
        if decision.rescue is not None:
            self._begin(self._rescue(decision.rescue))
        if decision.prune:
            self._begin(self._prune())
        if decision.check_empty:
            self._begin(self._check_empty())

    def warn_of_unknown_queues(self, used: Collection[str]) -> None:
        """Warn of queues to serve that no task uses and the store does not know; beside the first claims."""
        unused = [queue for queue in self._request(0).queues or () if queue not in used]
        if unused:
            self._begin(self._warn_of_unknown(unused, used))

    async def _warn_of_unknown(self, unused: list[str], used: Collection[str]) -> None:
        try:
            stored = {view.name for view in await self._insight().queues(1)}
        except StoreError as error:
            _logger.debug("looking for the queues %s failed: %s", ", ".join(unused), error)
            return
        for queue in unused:
            if queue not in stored:
                _logger.warning("%s", unknown_queue(queue, stored.union(used)))

    async def finished(self) -> None:
        """Wait until no call is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._reported(call))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _reported(self, call: Coroutine[Any, Any, None]) -> None:
        """Report the end of a call from within: a callback of the task would run one loop iteration later."""
        error: BaseException | None = None
        try:
            await call
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as broken:  # noqa: BLE001 - it ends the worker
            error = broken
        finally:
            self._ended(error)

    async def _timed(self, call: Awaitable[T]) -> T:
        """Wait for the reply; if it is late, other workers may have waited too, unable to extend their leases."""
        sent_at = time.monotonic()
        answer = await call
        if time.monotonic() - sent_at > self._late:
            self._machine.stalled()
        if self._failing is not None:
            self._hooks().store_recover.emit(StoreFailure(self._failing))
            self._failing = None
        return answer

    def _failed(self, what: str, error: HoldfastError) -> None:
        """Report a call that failed and will be repeated."""
        self._failing = what
        self._hooks().store_fail.emit(StoreFailure(what, error))

    async def _claim(self, limit: int, slots: int) -> None:
        try:
            await self.release_unknown_claim()
            sent_at = time.monotonic()
            claim = await self._timed(self._store().claim(structs.replace(self._request(limit), slots=slots)))
            if claim.jobs:
                self._last_fence = max(self._last_fence, claim.jobs[0].fence)
                failpoint("after_claim")
        except TRANSIENT as error:
            self._lost_reply = self._lost_reply or isinstance(error, OutcomeUnknown)
            self._failed("claim", error)
            self._machine.claim_failed(time.monotonic())
        except BaseException:
            self._machine.claim_failed(time.monotonic())  # this ends the worker, which then waits for no reply
            raise
        else:
            asked = len(claim.jobs) if claim.is_cut else limit
            now = time.monotonic()
            waits = float("inf") if claim.wait is None else claim.wait.total_seconds()
            limited_for = waits if claim.is_limited else None
            self._reports.claimed(len(claim.jobs), now - sent_at)
            self._machine.claimed(
                now, claim.jobs, asked=asked, sent_at=sent_at, limited=claim.limited, limited_for=limited_for
            )
            if self._dead_workers.is_look_due(now, len(claim.jobs)):
                self._begin(self._look(self._dead_workers))
            if self._unknown_tasks.is_look_due(now, len(claim.jobs)):
                self._begin(self._look(self._unknown_tasks))

    async def _look(self, at: DeadWorkers | UnknownTasks) -> None:
        """Log why jobs wait: only the log depends on it, so it is not repeated."""
        try:
            await at.look(self._request(0))
        except StoreError as error:
            _logger.debug("looking for the reason why jobs wait failed: %s", error)

    async def release_unknown_claim(self) -> None:
        """Release the jobs of a claim whose reply was lost.

        None of them has begun. If their leases expired, each job, up to 500 of them, would count as lost by a worker
        and run isolated in a child process next. One claim is in flight at a time, so every lease of this worker with a
        larger fence than the last known one belongs to that claim. If the claim commits after this read, its leases
        still expire.
        """
        if not self._lost_reply:
            return
        leases = await self._store().unacknowledged_leases(self._request(0).worker_id, self._last_fence)
        if leases:
            await self._store().release(leases, started=False)
            _logger.warning("released %d jobs of a claim whose reply was lost", len(leases))
        self._lost_reply = False

    async def _flush(self, finishes: list[Finish]) -> None:
        failpoint("before_flush")
        sent_at = time.monotonic()
        try:
            verdicts = await self._timed(self._store().finish(finishes, briefly=True))
            failpoint("after_flush")
        except TRANSIENT as error:
            self._failed(f"writing {len(finishes)} outcomes", error)
            self._machine.flush_failed(time.monotonic(), finishes)
        except BaseException:
            self._machine.flush_failed(time.monotonic(), finishes)
            raise
        else:
            now = time.monotonic()
            self._reports.flushed(finishes, verdicts, now - sent_at)
            self._machine.flushed(now, finishes, verdicts)

    async def _release(self, leases: list[Lease], *, started: bool) -> None:
        try:
            await self._timed(self._store().release(leases, started=started))
        except TRANSIENT as error:
            self._failed(f"releasing {len(leases)} jobs", error)
            self._machine.release_failed(time.monotonic(), leases)
        except BaseException:
            self._machine.release_failed(time.monotonic(), leases)
            raise
        else:
            self._machine.released(time.monotonic(), leases)

    async def _promote(self) -> None:
        try:
            promotion = await self._timed(self._store().promote(self._settings.promote_limit))
        except TRANSIENT as error:
            self._maintenance_failed("promoting due jobs", error)
        else:
            self._machine.promoted(time.monotonic(), promotion)

    async def _rescue(self, unbroken: timedelta) -> None:
        limit = self._settings.rescue_limit
        try:
            rescued = await self._timed(self._store().rescue(unbroken, limit))
        except TRANSIENT as error:
            self._maintenance_failed("rescuing expired leases", error)
            rescued = None
        if rescued is not None:
            self._dead_workers.rescued(rescued)
            self._machine.rescued(time.monotonic(), len(rescued), asked=limit)
        if rescued is None or len(rescued) < limit:  # after a full batch the next follows at once
            with contextlib.suppress(StoreError):  # they are reported without the ages of heartbeats
                await self._dead_workers.report_rescues()

    async def _prune(self) -> None:
        limit = self._settings.prune_limit
        try:
            pruned = await self._timed(self._store().prune(self._retention, limit))
        except TRANSIENT as error:
            self._maintenance_failed("pruning finished jobs", error)
        else:
            self._machine.pruned(time.monotonic(), pruned, limit)

    async def _check_empty(self) -> None:
        request = self._request(0)
        try:
            left = await self._timed(self._store().outstanding(request.tasks, request.queues))
        except TRANSIENT as error:
            self._maintenance_failed("checking for remaining jobs", error)
            return
        self.left = left
        self._machine.emptiness(time.monotonic(), left.ready == 0 if self._until_idle else left.is_empty)

    def _maintenance_failed(self, what: str, error: HoldfastError) -> None:
        self._failed(what, error)
        self._machine.maintenance_failed(time.monotonic())
