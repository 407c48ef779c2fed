"""A program that claims by itself, as those do who have a loop of their own: `app.claim`, and every way to end a job.

One by one or many in a batch. Nobody extends its leases but itself, and it leaves nothing behind: what it cannot end it
gives back, for as long as the store takes to hear it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence

from holdfast.app.claimed_job import ClaimedJob
from holdfast.errors import LeaseLost
from holdfast.model.outcome import Cancel
from holdfast.torture.names import QUEUE
from holdfast.torture.programs.claim_choices import AGAIN, POLL, PULLED, TROUBLE, Dice, How, has_effect
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work.app import app
from holdfast.torture.work.attempt import attempt, insert_into, row, take_effect
from holdfast.torture.work.endings import Unlucky


class Puller:
    """Claims and ends jobs until it is asked to stop."""

    def __init__(self, settings: WorkerProgramSettings, dice: Dice) -> None:
        self._lease = settings.lease
        self._dice = dice
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            await app.close()

    async def _once(self) -> None:
        limit, batched = self._dice.limit()
        try:
            jobs = await app.claim(QUEUE, limit, tasks=PULLED, lease=self._lease, worker_id=self._dice.worker_id)
        except TROUBLE:  # what an unanswered claim has taken expires
            await self._wait(AGAIN)
            return
        if not jobs:
            await self._wait(POLL)
        elif batched:
            await self._together(jobs)
        else:
            await self._one_by_one(jobs)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    # --- one by one -------------------------------------------------------------------------------------------------

    async def _one_by_one(self, jobs: Sequence[ClaimedJob]) -> None:
        fresh_until = time.monotonic() + self._lease / 4
        waiting = list(jobs)
        while waiting:
            if time.monotonic() > fresh_until:
                waiting = [job for job in waiting if await self._extended(job)]
                fresh_until = time.monotonic() + self._lease / 4
                continue
            job = waiting.pop(0)
            how = How.GIVEN_BACK if self._stop.is_set() else self._dice.how()
            try:
                await self._end(job, how)
            except LeaseLost:
                continue
            except TROUBLE:
                await self._give_back(job)

    async def _extended(self, job: ClaimedJob) -> bool:
        try:
            await job.extend()
        except LeaseLost:
            return False
        except TROUBLE:
            await self._give_back(job)
            return False
        return True

    async def _end(self, job: ClaimedJob, how: How) -> None:
        """Run a job and write its end."""
        if how is How.GIVEN_BACK:
            await self._give_back(job)
            return
        try:
            is_completed = await self._run(job, how)
        except Unlucky as error:
            await (job.fail(error) if how is How.FAILED else job.retry(error))
        except Cancel as error:
            await job.cancel(str(error))
        else:
            if not is_completed:
                await job.complete()

    async def _run(self, job: ClaimedJob, how: How) -> bool:
        """Do what a handler would; True if that has completed the job."""
        context = job.context()
        with attempt(context):
            await asyncio.sleep(self._dice.work())
            if how in {How.RETRIED, How.FAILED}:
                raise Unlucky
            if how is How.CANCELLED:
                raise Cancel("as was drawn")
            if has_effect(job):
                await take_effect(context)
        return has_effect(job)

    # --- together ---------------------------------------------------------------------------------------------------

    async def _together(self, jobs: Sequence[ClaimedJob]) -> None:
        """Write the effects and the ends of jobs in one transaction, and give back what has not ended."""
        await asyncio.sleep(self._dice.work())
        left = list(jobs)
        try:
            async with app.batch(jobs) as batch:
                drawn = [(job, self._dice.how()) for job in batch.held]
                for job, how in drawn:
                    if how is How.COMPLETED:
                        if has_effect(job):
                            await batch.connection.execute(insert_into("effect"), row(job.job))
                        batch.complete(job)
                    elif how is How.RETRIED:
                        batch.retry(job, Unlucky())
                    elif how is How.FAILED:
                        batch.fail(job, Unlucky())
            left = [job for job, how in drawn if how in {How.CANCELLED, How.GIVEN_BACK}]
        except (LeaseLost, *TROUBLE):
            pass  # nothing, or nobody knows what, was written: all that is still held is given back
        for job in left:
            await self._give_back(job)

    async def _give_back(self, job: ClaimedJob) -> None:
        """Give a job back, unless it is not ours any more; ask until the store has heard it."""
        while True:
            try:
                await job.release()
            except LeaseLost:
                return
            except TROUBLE:
                await asyncio.sleep(AGAIN)  # the store cannot be reached
            else:
                return
