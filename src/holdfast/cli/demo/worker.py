"""A worker: it claims jobs, attempts them, and writes the effects and outcomes of a batch in one transaction.

It runs its own claim loop instead of `holdfast worker run`, so it also rescues the jobs of killed workers. It keeps
no state that matters to the outcome, and may be killed at any point.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.records import Records
from holdfast.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionExpired
from holdfast.model.lease_rules import RESCUE_PARTS
from holdfast.runtime.reachability import GAP_PER_LEASE, Access

if TYPE_CHECKING:
    from holdfast.app.claimed_job import ClaimedJob
    from holdfast.store.backend import Backend

_logger = logging.getLogger("holdfast.demo")
_PASSING = (StoreUnavailable, OutcomeUnknown)
_POLL = 0.1
_RESCUE_LIMIT = 1000


class DemoReport(msgspec.Struct):
    """The counters of a worker since its start; `holding` counts jobs that are claimed and have not ended."""

    done: int = 0
    failed_attempts: int = 0
    given_up: int = 0
    rescued: int = 0
    lost: int = 0
    holding: int = 0
    is_waiting: bool = False
    used_attempts: dict[int, int] = {}


class DemoWorker:
    """Consumes the jobs of a run until none is left, or until it is stopped."""

    def __init__(
        self, records: Records, run: DemoRun, *, name: str, batch_size: int, on_report: Callable[[DemoReport], None]
    ) -> None:
        self._records = records
        self._app = records.app
        self._run = run
        self._name = name
        self._batch_size = min(batch_size, records.largest_batch)
        self._on_report = on_report
        self._access = Access(gap=run.plan.work_timeout * GAP_PER_LEASE)
        self._rescue_at = 0.0
        self._wakeup = asyncio.Event()
        self._is_stopping = False
        self.report = DemoReport()

    def stop(self) -> None:
        """Stop after the current batch."""
        self._is_stopping = True
        self._wakeup.set()

    async def run(self) -> DemoReport:
        """Consume until nothing is left or `stop` is called; return the counters."""
        backend = await self._app.opened()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wakeup.set)

        unlisten = backend.notifier.listen(wake)
        try:
            while not self._is_stopping:
                self._wakeup.clear()
                try:
                    is_idle = await self._turn(backend)
                except _PASSING as error:
                    # Nothing to clean up: the batch is not written again, and its leases expire.
                    _logger.warning("%s: the store did not answer, retrying: %s", self._name, error)
                    self._access.failed()
                    is_idle = False
                    await self._pause()
                if is_idle:
                    return self.report
        finally:
            unlisten()
        return self.report

    async def _turn(self, backend: Backend) -> bool:
        """Claim and consume one batch; return True if the run has no job left."""
        await self._rescue(backend)
        plan = self._run.plan
        held = await self._app.claim(
            self._run.queue,
            self._batch_size,
            tasks=[self._records.task.name],
            lease=plan.work_timeout,
            worker_id=self._name,
        )
        self._access.succeeded(time.monotonic())
        if held:
            self._report_state(holding=len(held), is_waiting=False)
            await self._consume(held)
            self._access.succeeded(time.monotonic())
            self._report_state(holding=0, is_waiting=False)
            return False
        left = await backend.jobs.outstanding([self._records.task.name], [self._run.queue])
        if left.is_empty:
            return True
        self._report_state(holding=0, is_waiting=True)
        await self._pause()
        return False

    async def _consume(self, held: list[ClaimedJob]) -> None:
        """Attempt each job, and write all outcomes at once."""
        attempts = [(job, *self._attempt(job)) for job in held]
        try:
            ended, lost = await self._records.write(attempts, self._name)
        except (LeaseLost, TransactionExpired) as error:
            # Nothing was written: other workers have the jobs, or get them when the leases expire. Shrink the batch.
            self._batch_size = max(1, self._batch_size // 2)
            _logger.warning("%s was too slow: %s", self._name, error)
            self.report.lost += len(held)
            return
        self.report.lost += lost
        self._note(ended)

    def _attempt(self, job: ClaimedJob) -> tuple[int, bool]:
        """Attempt a job at random; return the used attempts, which exclude those lost with a worker, and success."""
        _, arguments = job.arguments()
        used_attempts = job.job.used_attempts
        return used_attempts, self._run.plan.succeeds(arguments["number"], used_attempts)

    def _note(self, ended: list[tuple[ClaimedJob, int, bool]]) -> None:
        report = self.report
        for job, used_attempts, success in ended:
            if success:
                report.done += 1
                report.used_attempts[used_attempts] = report.used_attempts.get(used_attempts, 0) + 1
            else:
                report.failed_attempts += 1
                report.given_up += job.job.is_last_attempt

    async def _rescue(self, backend: Backend) -> None:
        """Rescue the jobs of dead workers, only after unbroken access to the store: see `Access`."""
        now = time.monotonic()
        began = self._access.began(now)
        if began is None or now < self._rescue_at:
            return
        self._rescue_at = now + self._run.plan.work_timeout / RESCUE_PARTS
        rescued = await backend.jobs.rescue(timedelta(seconds=now - began), _RESCUE_LIMIT)
        self._access.succeeded(time.monotonic())
        self.report.rescued += len(rescued)

    async def _pause(self) -> None:
        """Wait for a notification, or for the poll interval."""
        timer = asyncio.get_running_loop().call_later(_POLL, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()

    def _report_state(self, *, holding: int, is_waiting: bool) -> None:
        self.report.holding = holding
        self.report.is_waiting = is_waiting
        self._on_report(self.report)
