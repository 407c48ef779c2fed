"""A consumer: it claims works, tries them, and writes the effects and ends of a batch in one transaction.

It drives itself instead of running a worker, so it also does what workers do for all: it rescues works whose consumer
was killed. Nothing that it notes matters to the outcome; it may be killed at any point.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta

import msgspec

from holdfast.app.claimed_job import ClaimedJob
from holdfast.cli.demo.plan import DemoRun
from holdfast.cli.demo.records import Records
from holdfast.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionExpired
from holdfast.runtime.reachability import GAP_PER_LEASE, Access
from holdfast.store.backend import Backend

_logger = logging.getLogger("holdfast.demo")
_PASSING = (StoreUnavailable, OutcomeUnknown)
_POLL = 0.1
_RESCUES_PER_LEASE = 8
_RESCUE_LIMIT = 1000


class ConsumerReport(msgspec.Struct):
    """What a consumer has done since it was started; `holding` works are claimed and not yet ended."""

    done: int = 0
    failed_tries: int = 0
    given_up: int = 0
    rescued: int = 0
    lost: int = 0
    holding: int = 0
    is_waiting: bool = False
    tries: dict[int, int] = {}


class DemoConsumer:
    """Consumes the works of a run until none is left, or until it is stopped."""

    def __init__(
        self, records: Records, run: DemoRun, *, name: str, batch_size: int, told: Callable[[ConsumerReport], None]
    ) -> None:
        self._records = records
        self._app = records.app
        self._run = run
        self._name = name
        self._batch_size = batch_size
        self._told = told
        self._access = Access(gap=run.plan.work_timeout * GAP_PER_LEASE)
        self._rescue_at = 0.0
        self._hint = asyncio.Event()
        self._is_stopping = False
        self.report = ConsumerReport()

    def stop(self) -> None:
        """Let the batch in hand be the last."""
        self._is_stopping = True
        self._hint.set()

    async def run(self) -> ConsumerReport:
        """Consume; return what was done."""
        backend = await self._app.opened()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._hint.set)

        unlisten = backend.notifier.listen(wake)
        try:
            while not self._is_stopping:
                self._hint.clear()
                try:
                    is_idle = await self._turn(backend)
                except _PASSING as error:
                    # Nothing needs mending here: what is still held is written again by nobody, and its lease ends.
                    _logger.warning("%s: the store did not answer, trying again: %s", self._name, error)
                    self._access.failed()
                    is_idle = False
                    await self._pause()
                if is_idle:
                    return self.report
        finally:
            unlisten()
        return self.report

    async def _turn(self, backend: Backend) -> bool:
        """Claim and consume one batch; True if nothing is left of the run."""
        await self._rescue(backend)
        plan = self._run.plan
        held = await self._app.claim(
            self._run.queue,
            self._batch_size,
            tasks=[self._records.work.name],
            lease=plan.work_timeout,
            worker_id=self._name,
        )
        self._access.succeeded(time.monotonic())
        if held:
            self._tell(holding=len(held), is_waiting=False)
            await self._consume(held)
            self._access.succeeded(time.monotonic())
            self._tell(holding=0, is_waiting=False)
            return False
        left = await backend.jobs.outstanding([self._records.work.name], [self._run.queue])
        if left.is_empty:
            return True
        self._tell(holding=0, is_waiting=True)
        await self._pause()
        return False

    async def _consume(self, held: list[ClaimedJob]) -> None:
        """Try each work, and write what came of it in one transaction."""
        tried = [(job, *self._attempt(job)) for job in held]
        try:
            async with self._app.batch(held) as batch:
                still_held = {job.id for job in batch.held}
                ended = [(job, tries, success) for job, tries, success in tried if job.id in still_held]
                effects = [
                    (job.id, job.job.attempt, tries, job.job.fence, self._name)
                    for job, tries, success in ended
                    if success
                ]
                await self._records.ground.link(batch.connection).many("add_effect", effects)
                for job, tries, success in ended:
                    if success:
                        batch.complete(job)
                    else:
                        batch.retry(job, f"try {tries} failed by chance")
        except (LeaseLost, TransactionExpired) as error:
            # Nothing was written: others have the works, or will have when the lease is over. Less at once is faster.
            self._batch_size = max(1, self._batch_size // 2)
            _logger.warning("%s was too slow: %s", self._name, error)
            self.report.lost += len(held)
            return
        self.report.lost += len(batch.lost)
        self._note(ended)

    def _attempt(self, job: ClaimedJob) -> tuple[int, bool]:
        """Try a work; chance decides. Attempts that were lost with their consumer are no tries."""
        _, arguments = job.arguments()
        tries = job.job.used_attempts
        return tries, self._run.plan.succeeds(arguments["number"], tries)

    def _note(self, ended: list[tuple[ClaimedJob, int, bool]]) -> None:
        report = self.report
        for job, tries, success in ended:
            if success:
                report.done += 1
                report.tries[tries] = report.tries.get(tries, 0) + 1
            else:
                report.failed_tries += 1
                report.given_up += job.job.is_last_attempt

    async def _rescue(self, backend: Backend) -> None:
        """Free works whose consumer is gone; only after unbroken access, lest living ones be robbed: see `Access`."""
        now = time.monotonic()
        began = self._access.began(now)
        if began is None or now < self._rescue_at:
            return
        self._rescue_at = now + self._run.plan.work_timeout / _RESCUES_PER_LEASE
        rescued = await backend.jobs.rescue(timedelta(seconds=now - began), _RESCUE_LIMIT)
        self._access.succeeded(time.monotonic())
        self.report.rescued += len(rescued)

    async def _pause(self) -> None:
        """Wait for a hint of work, or for a while."""
        timer = asyncio.get_running_loop().call_later(_POLL, self._hint.set)
        try:
            await self._hint.wait()
        finally:
            timer.cancel()

    def _tell(self, *, holding: int, is_waiting: bool) -> None:
        self.report.holding = holding
        self.report.is_waiting = is_waiting
        self._told(self.report)
