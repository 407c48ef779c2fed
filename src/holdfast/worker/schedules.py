"""Fires schedules that are due and confirms those that the code declares, beside the worker's jobs.

Every worker does this; none of them leads. The store gives each nominal time one job, and all times are those of its
clock: a worker only decides when to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.declarations import PERIOD, Declarations, Disputes
from holdfast.store.schedules import Declared, ScheduleStore
from holdfast.worker.backoff import Backoff

_logger = logging.getLogger("holdfast.worker")
POLL = 5.0  # seconds: another process may have defined a schedule meanwhile
LIMIT = 100  # jobs of one schedule that one call enqueues
_SOONEST = 0.01
_SPREAD = 0.05  # seconds: of many workers that wait for the same instant, most find it fired already


class ScheduleLoop:
    """What a worker does for schedules. `step` does what is due and returns the seconds until the next."""

    def __init__(self, store: Callable[[], ScheduleStore], declared: Declarations, tasks: Sequence[str]) -> None:
        self._store = store
        self._declared = declared
        self._tasks = tasks
        self._names = list(declared.definitions)
        self._disputes = Disputes()
        self._declare_at = float("-inf")
        self._has_declared = False
        self._warned: set[str] = set()
        self._backoff = Backoff()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; a call that is in flight then ends first."""
        while not stop.is_set():
            wait = await self.step(time.monotonic())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait + _SPREAD * random.random()):  # noqa: S311 - spreads many workers
                    await stop.wait()

    async def step(self, now: float) -> float:
        """Confirm and fire what is due; return the seconds to wait."""
        try:
            if now >= self._declare_at:
                await self._declare(now)
                self._declare_at = now + PERIOD
            fired = await self._store().fire(self._tasks, self._names, LIMIT)
        except (StoreUnavailable, OutcomeUnknown) as error:
            _logger.warning("firing schedules failed, retrying: %s", error)
            self._disputes.failed()
            self._backoff.failed(now)
            return max(self._backoff.until - now, _SOONEST)
        self._backoff.succeeded()
        if fired.jobs:
            _logger.debug("fired %d jobs of schedules", fired.jobs)
        for name, problem in fired.problems.items():
            _logger.warning("schedule %s is due and cannot be fired here: %s", name, problem)
        due = timedelta.max if fired.next_due is None else fired.next_due
        return max(min(due.total_seconds(), POLL, self._declare_at - now), _SOONEST)

    async def _declare(self, now: float) -> None:
        overrules = self._disputes.overruled(now) if self._has_declared else None
        owner, definitions = self._declared.owner, self._declared.definitions
        answer = await self._store().declare(owner, definitions, overrules=overrules)
        self._has_declared = True
        for name in overrules or {}:
            if name not in answer.disputed:
                _logger.info("schedule %s: %s", name, "replaced" if name in definitions else "removed: not in the code")
        self._disputes.observed(now, answer.disputed)
        self._warn(answer)

    def _warn(self, answer: Declared) -> None:
        for name, other in answer.taken.items():
            if name not in self._warned:
                self._warned.add(name)
                _logger.warning(
                    "schedule %s is declared by app %r too and stays as it is there: give one of the two another name, "
                    "or both apps the same App(name=…) if they are the same app",
                    name,
                    other,
                )


@asynccontextmanager
async def firing(
    store: Callable[[], ScheduleStore],
    declared: Declarations | None,
    tasks: Sequence[str],
    broke: Callable[[BaseException | None], None],
) -> AsyncGenerator[None]:
    """Do all this while the block runs; without declarations, nothing. An error that cannot be retried is reported."""
    if declared is None:
        yield
        return
    stop = asyncio.Event()
    running = asyncio.create_task(ScheduleLoop(store, declared, tasks).run(stop))
    running.add_done_callback(lambda done: broke(None if done.cancelled() else done.exception()))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait([running])
