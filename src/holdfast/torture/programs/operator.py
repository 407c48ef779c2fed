"""What a producer does, as an operator, to jobs that it enqueued: cancel, retry, reset, pause their queue."""

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
    """`Follow`, with records."""

    def __init__(self) -> None:
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Stop waiting: the producer is about to exit."""
        self._hurried.set()

    async def after(self, seconds: float) -> bool:
        """Wait for some time; False if the producer is about to exit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        return not self._hurried.is_set()

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
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
        """Retry an ended job."""
        sent_us = now_us()
        recorder.write(RetryCalled(at_us=sent_us, job=job_id))
        answer = await _done(app.jobs.retry(job_id))
        recorder.write(RetryAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))

    async def reset(self, job_id: str) -> bool:
        """Reset the lease of a job; False if it is not running, or the store is unavailable."""
        sent_us = now_us()
        recorder.write(ResetCalled(at_us=sent_us, job=job_id))
        answer = await _done(app.jobs.reset(job_id))
        recorder.write(ResetAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))
        return answer is not False

    async def pause(self, queue: str, seconds: float) -> None:
        """Pause a queue for some time."""
        sent_us = now_us()
        try:
            await app.queues.pause(queue)
        except StoreUnavailable:
            return
        except OutcomeUnknown:
            pass  # the pause may have taken effect, so it must be undone
        else:
            recorder.write(PauseAnswered(at_us=now_us(), queue=queue, sent_us=sent_us))
        await self.after(seconds)
        while not await self._resumed(queue):  # noqa: ASYNC110 - no event announces that the store is available again
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
    """Return the reply to a call; None if its outcome is unknown."""
    try:
        return await call
    except StoreUnavailable:
        return False
    except OutcomeUnknown:
        return None
