"""Claims over HTTP: those that wait are served together, and hold no connection of the store while they wait.

```text
   claim ─▶ nothing there ─▶ wait for the next round ─▶ claim …
                                    ▲
      notification, a due job, or half a second later: the maintenance begins a round
```

Claims for the same queues and tasks take turns. If one finds nothing, the others of its group do not ask again in this
round: a thousand that wait cost the store as much as one. The more groups there are, the less often each asks.

The maintenance also does for workers over HTTP what a worker in Python does for itself: it promotes due jobs, rescues
expired leases and prunes. It runs from the first claim to the end of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.app.claim import claim_or_release
from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.model.job import LeasedJob
from holdfast.model.lease_rules import LATE_PARTS, RESCUE_PARTS
from holdfast.runtime.reachability import GAP_PER_LEASE, Access
from holdfast.store.values import ClaimRequest, WorkerHeartbeat
from holdfast.worker.dead_workers import DeadWorkers

if TYPE_CHECKING:
    from holdfast.server.state import ServerState
    from holdfast.store.backend import Backend

T = TypeVar("T")
_logger = logging.getLogger("holdfast.server")
_POLL: Final = 0.5  # seconds
_MOST_GAP: Final = 2.0  # seconds after which a call of the maintenance is late, however long the leases
_TIME_LIMIT: Final = 10.0  # seconds; a call that takes longer is cancelled, which undoes it
_LONGEST_DELAY: Final = 30.0
"""Seconds: late calls that succeed delay a rescue by so much and no more, or one client with short leases and a store
that is always a little too slow for them would keep the jobs of all dead workers."""
_SHORTEST_KEPT: Final = 60.0  # seconds: a lease as short as those that matter here has ended by then
_LOOKS_PER_GAP: Final = RESCUE_PARTS / LATE_PARTS  # each round keeps the access unbroken
_SOONEST: Final = 0.01
_REST: Final = 0.02  # seconds between rounds: each commit of another process may notify
_EACH: Final = 0.0025
"""Minimum interval between claims of a group, per group, in seconds: all groups together ask the store at most 400
times per second, and each of a thousand groups every 2.5 s."""
_LIMIT: Final = 1000  # jobs promoted, rescued or pruned in one call
_PRUNE_EVERY: Final = 60.0


class ClaimGroup:
    """Claims for the same queues and tasks.

    `empty_in` is the last round in which nothing was found for them; from `due` on those that wait may ask again.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.empty_in = -1
        self.due = 0.0
        self.size = 0


class WaitingClaims:
    """All claims of a server, and its maintenance."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._groups: dict[tuple[tuple[str, ...] | None, tuple[str, ...]], ClaimGroup] = {}
        self._round = 0
        self._begun = asyncio.Event()  # set when a round begins; then replaced
        self._woken = asyncio.Event()
        self._maintenance: asyncio.Task[None] | None = None
        self._access = Access(gap=_MOST_GAP)
        self._answers = Access(gap=_TIME_LIMIT)  # the store answers, late or not
        self._shortest = [_MOST_GAP, _MOST_GAP]  # as gaps: of the leases served in this period and in the last one
        self._forget_at = time.monotonic() + _SHORTEST_KEPT
        self._prune_at = time.monotonic() + _PRUNE_EVERY
        self._is_stopping = False
        self._dead = DeadWorkers(lambda: state.app.backend.insight, lambda: state.app.hooks)

    async def claim(
        self, request: ClaimRequest, *, wait: float, worker: WorkerHeartbeat | None = None
    ) -> list[LeasedJob]:
        """Claim jobs; wait at most so many seconds for the first.

        `worker`: what is known of the worker, if it has named itself; otherwise no other claim has its id.
        """
        backend = await self._state.opened()
        self._keep_up(backend)
        if not wait:
            await self._heartbeat_if_due(worker)
            await backend.jobs.promote(_LIMIT)
            return await self._claim(request, worker)
        kind = (request.queues, request.tasks)
        group = self._groups.setdefault(kind, ClaimGroup())
        group.size += 1
        try:
            async with asyncio.timeout(wait):
                return await self._claim_in_turn(group, request, worker)
        except TimeoutError:
            return []
        finally:
            group.size -= 1
            if not group.size:
                del self._groups[kind]

    def serve(self, lease: timedelta) -> None:
        """Note the length of a lease that a worker has got: a rescue spares the shortest one after an outage.

        See `runtime.reachability`: a worker does the same with its own lease.
        """
        self._shortest[0] = min(self._shortest[0], lease.total_seconds() * GAP_PER_LEASE)
        self._access.gap = self.gap

    @property
    def gap(self) -> float:
        """Seconds after which a call is late: workers with the shortest lease may have been unable to extend."""
        return min(self._shortest)

    async def _claim(self, request: ClaimRequest, worker: WorkerHeartbeat | None) -> list[LeasedJob]:
        jobs = await claim_or_release(self._state.app.backend.jobs, request, has_own_id=worker is None)
        if jobs:
            self.serve(request.lease)
        return jobs

    async def _heartbeat_if_due(self, worker: WorkerHeartbeat | None) -> None:
        if worker is not None:
            await self._state.extending.heartbeat_if_due(worker)

    async def _claim_in_turn(
        self, group: ClaimGroup, request: ClaimRequest, worker: WorkerHeartbeat | None
    ) -> list[LeasedJob]:
        is_new = True
        while not self._is_stopping:
            await self._heartbeat_if_due(worker)
            begun, now = self._begun, self._round
            async with group.turn:
                if group.empty_in < now and (is_new or time.monotonic() >= group.due):
                    jobs = await self._claim(request, worker)
                    if jobs:
                        return jobs
                    group.empty_in = now
                    group.due = time.monotonic() + _EACH * len(self._groups)
            is_new = False
            await begun.wait()
        return []

    def stop(self) -> None:
        """Answer all claims that wait: the server is about to end."""
        self._is_stopping = True
        self._begun.set()

    # --- maintenance --------------------------------------------------------------------------------------------------

    def _keep_up(self, backend: Backend) -> None:
        if self._maintenance is None or self._maintenance.done():
            self._maintenance = asyncio.get_running_loop().create_task(self._run(backend))

    async def close(self) -> None:
        """End the maintenance."""
        if self._maintenance is not None:
            self._maintenance.cancel()
            with suppress(asyncio.CancelledError):
                await self._maintenance
            self._maintenance = None

    async def _run(self, backend: Backend) -> None:
        loop = asyncio.get_running_loop()
        unlisten = backend.notifier.listen(_waker(loop, self._woken.set))
        try:
            while True:
                wait = await self._step(backend)
                self._round += 1
                begun, self._begun = self._begun, asyncio.Event()
                begun.set()
                await asyncio.sleep(_REST)  # what comes meanwhile belongs to one round
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._woken.wait()
                self._woken.clear()
        finally:
            unlisten()

    async def _step(self, backend: Backend) -> float:
        """Promote, rescue and prune what is due; return the seconds until the next round."""
        self._forget_short_leases()
        poll = min(_POLL, self._access.gap / _LOOKS_PER_GAP)
        try:
            due = (await self._timed(backend.jobs.promote(_LIMIT))).next_due
            rescued = await self._timed(backend.jobs.rescue(self._unbroken(), _LIMIT))
            for job in rescued:
                _logger.warning("job %s is %s again: the lease of %s expired", job.job_id, job.state, job.worker_id)
            self._dead.rescued(rescued)
            await self._dead.report_rescues()
            await self._state.attempts.expire()
            if await self._prune(backend):
                return _SOONEST
        except (StoreUnavailable, OutcomeUnknown, TimeoutError) as error:
            self._failed()
            _logger.warning("maintenance failed, retrying: %s", str(error) or "the store took too long")
            return poll
        except Exception as error:  # a round that fails must not be the last
            if isinstance(error, StoreError):
                self._failed()
            _logger.exception("maintenance failed, retrying")
            return poll
        return poll if due is None else min(max(due.total_seconds(), _SOONEST), poll)

    async def _prune(self, backend: Backend) -> bool:
        """Prune if it is due; return whether there may be more: a full batch is followed by another."""
        if time.monotonic() < self._prune_at:
            return False
        count = await self._timed(backend.jobs.prune(self._state.app.retention, _LIMIT))
        if count < _LIMIT:
            self._prune_at = time.monotonic() + _PRUNE_EVERY
        return count >= _LIMIT

    async def _timed(self, call: Awaitable[T]) -> T:
        """Wait for the answer; a late one ends the access, because others may have been unable to extend meanwhile."""
        sent_at = time.monotonic()
        async with asyncio.timeout(_TIME_LIMIT):
            answer = await call
        now = time.monotonic()
        if now - sent_at > self._access.gap:
            self._access.failed()
        self._access.succeeded(now)
        self._answers.succeeded(now)
        return answer

    def _failed(self) -> None:
        self._access.failed()
        self._answers.failed()

    def _unbroken(self) -> timedelta:
        now = time.monotonic()
        in_time, late = (now - (access.began(now) or now) for access in (self._access, self._answers))
        return timedelta(seconds=max(in_time, late - _LONGEST_DELAY))

    def _forget_short_leases(self) -> None:
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + _SHORTEST_KEPT
            self._shortest = [_MOST_GAP, self._shortest[0]]
            self._access.gap = self.gap


def _waker(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Callable[[], None]:
    """Return a function that wakes the loop from any thread."""

    def notified() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    return notified
