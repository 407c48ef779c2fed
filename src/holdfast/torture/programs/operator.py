"""What a producer does to jobs that it has enqueued: cancel them, send them back, take them away, pause their queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.torture.events import (
    CancelAnswered,
    CancelCalled,
    PauseAnswered,
    ResetAnswered,
    ResetCalled,
    ResumeAnswered,
    ResumeCalled,
    RetryAnswered,
    RetryCalled,
)
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app

_AGAIN = 0.3  # seconds


class Follower:
    """`Follow`, written down."""

    def __init__(self) -> None:
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Wait no more: the producer is about to end."""
        self._hurried.set()

    async def after(self, seconds: float) -> bool:
        """Let some time pass; False if there is none left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        return not self._hurried.is_set()

    async def cancel(self, job_id: str) -> None:
        """Ask to cancel a job."""
        sent_us = now_us()
        recorder.write(CancelCalled(at_us=sent_us, job=job_id))
        try:
            answer = str(await app.jobs.cancel(job_id, "cancelled by the run"))
        except StoreUnavailable:
            answer = "unavailable"
        except HoldfastError:
            answer = "unknown"
        recorder.write(CancelAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))

    async def retry(self, job_id: str) -> None:
        """Ask to run an ended job again."""
        sent_us = now_us()
        recorder.write(RetryCalled(at_us=sent_us, job=job_id))
        answer = await _done(app.jobs.retry(job_id))
        recorder.write(RetryAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))

    async def reset(self, job_id: str) -> bool:
        """Take the lease of a job away; False if it does not run, or nobody could be asked."""
        sent_us = now_us()
        recorder.write(ResetCalled(at_us=sent_us, job=job_id))
        answer = await _done(app.jobs.reset(job_id))
        recorder.write(ResetAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))
        return answer is not False

    async def pause(self, queue: str, seconds: float) -> None:
        """Let nobody claim from a queue for some time."""
        sent_us = now_us()
        try:
            await app.queues.pause(queue)
        except StoreUnavailable:
            return
        except OutcomeUnknown:
            pass  # nobody may count on it, but it has to be undone
        else:
            recorder.write(PauseAnswered(at_us=now_us(), queue=queue, sent_us=sent_us))
        await self.after(seconds)
        while not await self._resumed(queue):  # noqa: ASYNC110 - nobody tells when the store can be reached again
            await asyncio.sleep(_AGAIN)

    async def _resumed(self, queue: str) -> bool:
        sent_us = now_us()
        recorder.write(ResumeCalled(at_us=sent_us, queue=queue))
        try:
            await app.queues.resume(queue)
        except OutcomeUnknown:
            return False
        except StoreUnavailable:
            is_done = False
        else:
            is_done = True
        recorder.write(ResumeAnswered(at_us=now_us(), queue=queue, sent_us=sent_us))
        return is_done


async def _done(call: Awaitable[bool]) -> bool | None:
    """Return the answer to a call; None if it may have been done or not."""
    try:
        return await call
    except StoreUnavailable:
        return False
    except OutcomeUnknown:
        return None
