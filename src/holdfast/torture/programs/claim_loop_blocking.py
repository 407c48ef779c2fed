"""The same in blocking code, for a program without an event loop; it gives back what it comes to late."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType

from holdfast.app.claimed_job import ClaimedJob
from holdfast.errors import LeaseLost
from holdfast.model.outcome import Cancel
from holdfast.torture.names import QUEUE
from holdfast.torture.programs.claim_choices import AGAIN, POLL, PULLED, TROUBLE, Dice, How, has_effect
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.work.app import app
from holdfast.torture.work.attempt import attempt, insert_into, row, take_effect_blocking
from holdfast.torture.work.endings import Unlucky


class BlockingPuller:
    """Claims and ends jobs until it is asked to stop."""

    def __init__(self, settings: WorkerProgramSettings, dice: Dice) -> None:
        self._lease = settings.lease
        self._dice = dice
        self._is_asked_to_end = False

    def run(self) -> None:
        """Run until SIGTERM."""
        signal.signal(signal.SIGTERM, self._asked)
        try:
            while not self._is_asked_to_end:
                self._once()
        finally:
            app.sync.close()

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        self._is_asked_to_end = True  # no more: the handler of a signal must take no lock

    def _once(self) -> None:
        limit, batched = self._dice.limit()
        try:
            jobs = app.sync.claim(QUEUE, limit, tasks=PULLED, lease=self._lease, worker_id=self._dice.worker_id)
        except TROUBLE:
            time.sleep(AGAIN)  # the store cannot be reached
            return
        if not jobs:
            time.sleep(POLL)  # the rhythm of asking
        elif batched:
            self._together(jobs)
        else:
            self._one_by_one(jobs)

    def _one_by_one(self, jobs: Sequence[ClaimedJob]) -> None:
        began = time.monotonic()
        for job in jobs:
            is_late = self._is_asked_to_end or time.monotonic() - began > self._lease / 2
            how = How.GIVEN_BACK if is_late else self._dice.how()
            try:
                self._end(job, how)
            except LeaseLost:
                continue
            except TROUBLE:
                self._give_back(job)

    def _end(self, job: ClaimedJob, how: How) -> None:
        if how is How.GIVEN_BACK:
            self._give_back(job)
            return
        try:
            is_completed = self._run(job, how)
        except Unlucky as error:
            if how is How.FAILED:
                job.sync.fail(error)
            else:
                job.sync.retry(error)
        except Cancel as error:
            job.sync.cancel(str(error))
        else:
            if not is_completed:
                job.sync.complete()

    def _run(self, job: ClaimedJob, how: How) -> bool:
        context = job.sync.context()
        with attempt(context):
            time.sleep(self._dice.work())
            if how in {How.RETRIED, How.FAILED}:
                raise Unlucky
            if how is How.CANCELLED:
                raise Cancel("as was drawn")
            if has_effect(job):
                take_effect_blocking(context)
        return has_effect(job)

    def _together(self, jobs: Sequence[ClaimedJob]) -> None:
        time.sleep(self._dice.work())
        left = list(jobs)
        try:
            with app.sync.batch(jobs) as batch:
                drawn = [(job, self._dice.how()) for job in batch.held]
                for job, how in drawn:
                    if how is How.COMPLETED:
                        if has_effect(job):
                            batch.connection.execute(insert_into("effect"), row(job.job))
                        batch.complete(job)
                    elif how is How.RETRIED:
                        batch.retry(job, Unlucky())
                    elif how is How.FAILED:
                        batch.fail(job, Unlucky())
            left = [job for job, how in drawn if how in {How.CANCELLED, How.GIVEN_BACK}]
        except (LeaseLost, *TROUBLE):
            pass  # as in async code
        for job in left:
            self._give_back(job)

    def _give_back(self, job: ClaimedJob) -> None:
        while True:
            try:
                job.sync.release()
            except LeaseLost:
                return
            except TROUBLE:
                time.sleep(AGAIN)  # the store cannot be reached
            else:
                return
