"""The calls of the store that the machine decides on: begun, and their answers reported back to it.

Trouble that passes (the store cannot be reached, or nobody knows whether it has committed) is reported to the machine,
which repeats the call: every verb is safe to repeat. Anything else breaks the worker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.model.job import Lease
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.reachability import GAP_PER_LEASE
from holdfast.store.jobs import JobStore
from holdfast.store.values import ClaimRequest, Finish, Outstanding, Retention
from holdfast.worker.decision import Decision
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig

T = TypeVar("T")
_logger = logging.getLogger("holdfast.worker")
PASSING = (StoreUnavailable, OutcomeUnknown)


class StoreCalls:
    """Calls the store beside the handlers; `ended` is told of each one that is over, and of what broke it."""

    def __init__(
        self,
        machine: Machine,
        store: Callable[[], JobStore],
        settings: WorkerConfig,
        *,
        request: Callable[[int], ClaimRequest],
        retention: Retention,
        until_idle: bool,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._machine = machine
        self._store = store
        self._settings = settings
        self._late = settings.lease * GAP_PER_LEASE
        self._request = request
        self._retention = retention
        self._until_idle = until_idle
        self._ended = ended
        self._in_flight: set[asyncio.Task[None]] = set()
        self._heard = 0  # the largest fence that a claim was answered with
        self._misses_answer = False  # to a claim that was sent after that
        self.left: Outstanding | None = None
        """What was left at the last look whether anything is."""

    def carry_out(self, decision: Decision) -> None:
        """Begin every call that was decided on."""
        if decision.claim:
            self._begin(self._claim(decision.claim))
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

    async def finished(self) -> None:
        """Wait until no call is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._told(call))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _told(self, call: Coroutine[Any, Any, None]) -> None:
        """Tell from within that a call is over: a callback of the task would come a turn of the event loop later."""
        error: BaseException | None = None
        try:
            await call
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as broken:  # noqa: BLE001 - the worker ends of it
            error = broken
        finally:
            self._ended(error)

    async def _timed(self, call: Awaitable[T]) -> T:
        """Wait for the store's answer; a late one says that others, too, may have waited to extend their leases."""
        sent_at = time.monotonic()
        answer = await call
        if time.monotonic() - sent_at > self._late:
            self._machine.stalled()
        return answer

    async def _claim(self, limit: int) -> None:
        try:
            await self.give_back_unheard()
            sent_at = time.monotonic()
            claim = await self._timed(self._store().claim(self._request(limit)))
            if claim.jobs:
                self._heard = max(self._heard, claim.jobs[0].fence)
                failpoint("after_claim")
        except PASSING as error:
            self._misses_answer = self._misses_answer or isinstance(error, OutcomeUnknown)
            _logger.warning("claiming failed, trying again: %s", error)
            self._machine.claim_failed(time.monotonic())
        except BaseException:
            self._machine.claim_failed(time.monotonic())  # the worker ends of it, and waits for no answer
            raise
        else:
            asked = len(claim.jobs) if claim.is_cut else limit
            self._machine.claimed(time.monotonic(), claim.jobs, asked=asked, sent_at=sent_at)

    async def give_back_unheard(self) -> None:
        """Give back what a claim has taken whose answer was lost.

        Nobody has begun it. Left to expire it would be lost by a worker that lives, and its jobs run isolated next, up
        to 500 of them, in a child process each. One claim is in flight at a time, so whatever we hold under a larger
        fence than the last that we were told is of that kind. What the store commits after we have asked still expires.
        """
        if not self._misses_answer:
            return
        leases = await self._store().unheard(self._request(0).worker_id, self._heard)
        if leases:
            await self._store().release(leases, started=False)
            _logger.warning("gave back %d jobs: the answer to the claim that took them was lost", len(leases))
        self._misses_answer = False

    async def _flush(self, finishes: list[Finish]) -> None:
        failpoint("before_flush")
        try:
            verdicts = await self._timed(self._store().finish(finishes))
            failpoint("after_flush")
        except PASSING as error:
            _logger.warning("writing %d finished attempts failed, trying again: %s", len(finishes), error)
            self._machine.flush_failed(time.monotonic(), finishes)
        except BaseException:
            self._machine.flush_failed(time.monotonic(), finishes)
            raise
        else:
            self._machine.flushed(time.monotonic(), finishes, verdicts)

    async def _release(self, leases: list[Lease], *, started: bool) -> None:
        try:
            await self._timed(self._store().release(leases, started=started))
        except PASSING as error:
            _logger.warning("giving back %d jobs failed: %s", len(leases), error)
            self._machine.release_failed(time.monotonic(), leases)
        except BaseException:
            self._machine.release_failed(time.monotonic(), leases)
            raise
        else:
            self._machine.released(time.monotonic(), leases)

    async def _promote(self) -> None:
        try:
            promotion = await self._timed(self._store().promote(self._settings.promote_limit))
        except PASSING as error:
            self._upkeep_failed("moving due jobs to ready", error)
        else:
            self._machine.promoted(time.monotonic(), promotion)

    async def _rescue(self, unbroken: timedelta) -> None:
        limit = self._settings.rescue_limit
        try:
            rescued = await self._timed(self._store().rescue(unbroken, limit))
        except PASSING as error:
            self._upkeep_failed("rescuing expired leases", error)
            return
        for job in rescued:
            _logger.warning("job %s (%s) was lost by worker %s: now %s", job.job_id, job.task, job.worker_id, job.state)
        self._machine.rescued(time.monotonic(), len(rescued), asked=limit)

    async def _prune(self) -> None:
        limit = self._settings.prune_limit
        try:
            pruned = await self._timed(self._store().prune(self._retention, limit))
        except PASSING as error:
            self._upkeep_failed("pruning finished jobs", error)
        else:
            self._machine.pruned(time.monotonic(), pruned, limit)

    async def _check_empty(self) -> None:
        request = self._request(0)
        try:
            left = await self._timed(self._store().outstanding(request.tasks, request.queues))
        except PASSING as error:
            self._upkeep_failed("looking whether anything is left", error)
            return
        self.left = left
        self._machine.emptiness(time.monotonic(), left.ready == 0 if self._until_idle else left.is_empty)

    def _upkeep_failed(self, what: str, error: HoldfastError) -> None:
        _logger.warning("%s failed, trying again: %s", what, error)
        self._machine.upkeep_failed(time.monotonic())
