"""A program that claims directly, without a worker: `app.claim`, and every way to finish a job, singly or in a batch.

Only the program itself extends its leases, and it leaves none behind: a job that it cannot finish it releases, however
long the store takes to acknowledge that.

The loop is written once and runs in two ways. In the blocking way every call goes to `.sync`, so that the coroutine
never suspends and needs no event loop.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from types import FrameType
from typing import Any

from holdfast.app.app import App
from holdfast.app.batch import Batch
from holdfast.app.claimed_job import ClaimedJob
from holdfast.errors import LeaseLost
from holdfast.model.outcome import Cancel
from holdfast.torture.names import QUEUE
from holdfast.torture.programs.claim_choices import POLL, RETRY_AFTER, TASKS, TRANSIENT, ClaimChoices, End, has_effect
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work.app import app
from holdfast.torture.work.attempt import attempt, put, take_effect, take_effect_blocking
from holdfast.torture.work.endings import Unlucky


class ClaimLoop:
    """Claims and finishes jobs until SIGTERM, through async or through blocking calls."""

    def __init__(self, settings: WorkerProgramSettings, choices: ClaimChoices) -> None:
        self._lease = settings.lease
        self._choices = choices
        self._is_stopping = False

    def run(self) -> None:
        """Run until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        if self._choices.is_blocking:
            _run_without_loop(self._run())
        else:
            asyncio.run(self._run())

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True  # nothing else: a signal handler must take no lock

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                await self._once()
        finally:
            await _done(self._api(app).close())

    def _api(self, of: App | ClaimedJob) -> Any:
        """Return the async or the blocking methods of an app or a job."""
        return of.sync if self._choices.is_blocking else of

    async def _sleep(self, seconds: float) -> None:
        await _done((time.sleep if self._choices.is_blocking else asyncio.sleep)(seconds))

    async def _once(self) -> None:
        limit, batched = self._choices.limit()
        worker_id = self._choices.worker_id
        try:
            claim = self._api(app).claim(QUEUE, limit, tasks=TASKS, lease=self._lease, worker_id=worker_id)
            jobs: Sequence[ClaimedJob] = await _done(claim)
        except TRANSIENT:  # leases of a claim whose reply was lost expire
            await self._sleep(RETRY_AFTER)
            return
        if not jobs:
            await self._sleep(POLL)
        elif batched:
            await self._finish_batch(jobs)
        else:
            await self._finish_singly(jobs)

    # --- singly -----------------------------------------------------------------------------------------------------

    async def _finish_singly(self, jobs: Sequence[ClaimedJob]) -> None:
        fresh_until = time.monotonic() + self._lease / 4
        waiting = list(jobs)
        while waiting:
            if time.monotonic() > fresh_until:
                waiting = [job for job in waiting if await self._extended(job)]
                fresh_until = time.monotonic() + self._lease / 4
                continue
            job = waiting.pop(0)
            try:
                await self._finish(job, End.RELEASED if self._is_stopping else self._choices.end())
            except LeaseLost:
                continue
            except TRANSIENT:
                await self._release(job)

    async def _extended(self, job: ClaimedJob) -> bool:
        try:
            await _done(self._api(job).extend())
        except LeaseLost:
            return False
        except TRANSIENT:
            await self._release(job)
            return False
        return True

    async def _finish(self, job: ClaimedJob, end: End) -> None:
        """Run a job and write its outcome."""
        if end is End.RELEASED:
            await self._release(job)
            return
        api = self._api(job)
        try:
            is_completed = await self._handle(job, end)
        except Unlucky as error:
            await _done(api.fail(error) if end is End.FAILED else api.retry(error))
        except Cancel as error:
            await _done(api.cancel(str(error)))
        else:
            if not is_completed:
                await _done(api.complete())

    async def _handle(self, job: ClaimedJob, end: End) -> bool:
        """Do what a handler would; True if that has completed the job."""
        context = self._api(job).context()
        with attempt(context):
            await self._sleep(self._choices.work())
            if end in {End.RETRIED, End.FAILED}:
                raise Unlucky
            if end is End.CANCELLED:
                raise Cancel("as drawn")
            if has_effect(job):
                await _done((take_effect_blocking if self._choices.is_blocking else take_effect)(context))
        return has_effect(job)

    # --- in a batch -------------------------------------------------------------------------------------------------

    async def _finish_batch(self, jobs: Sequence[ClaimedJob]) -> None:
        """Write the effects and the outcomes of jobs in one transaction, and release the rest."""
        await self._sleep(self._choices.work())
        left = list(jobs)
        try:
            async with self._batch(jobs) as batch:
                drawn = [(job, self._choices.end()) for job in batch.held]
                for job, end in drawn:
                    if end is End.COMPLETED:
                        if has_effect(job):
                            await _done(put(batch.connection, "effect", job.job))
                        batch.complete(job)
                    elif end is End.RETRIED:
                        batch.retry(job, Unlucky())
                    elif end is End.FAILED:
                        batch.fail(job, Unlucky())
            left = [job for job, end in drawn if end in {End.CANCELLED, End.RELEASED}]
        except (LeaseLost, *TRANSIENT):
            pass  # nothing was written, or the outcome is unknown: all jobs that are still leased are released
        for job in left:
            await self._release(job)

    @asynccontextmanager
    async def _batch(self, jobs: Sequence[ClaimedJob]) -> AsyncGenerator[Batch]:
        if self._choices.is_blocking:
            with app.sync.batch(jobs) as batch:
                yield batch
        else:
            async with app.batch(jobs) as batch:
                yield batch

    async def _release(self, job: ClaimedJob) -> None:
        """Release a job, unless its lease is lost; repeat until the store acknowledges it."""
        while True:
            try:
                await _done(self._api(job).release())
            except LeaseLost:
                return
            except TRANSIENT:
                await self._sleep(RETRY_AFTER)
            else:
                return


async def _done(call: Any) -> Any:
    """Return the result of an async call, or of a blocking one, which is done already."""
    return await call if isawaitable(call) else call


def _run_without_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("a blocking call has suspended")
