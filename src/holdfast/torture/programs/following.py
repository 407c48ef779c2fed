"""What a producer does to jobs that it has enqueued: cancel them, send them back."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.torture.events import CancelAnswered, CancelCalled, RetryAnswered, RetryCalled
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app


class Follower:
    """`Follow`, written down."""

    def __init__(self) -> None:
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Wait no more: the producer is about to end."""
        self._hurried.set()

    async def after(self, seconds: float) -> None:
        """Let some time pass."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()

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
        answer: bool | None
        try:
            answer = await app.jobs.retry(job_id)
        except StoreUnavailable:
            answer = False
        except OutcomeUnknown:
            answer = None
        recorder.write(RetryAnswered(at_us=now_us(), job=job_id, answer=answer, sent_us=sent_us))
