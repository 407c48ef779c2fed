"""What a producer does, as an operator, to jobs that it enqueued: cancel, retry, reset, pause and limit their queue.

And it schedules their task, for some time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from holdfast.app.tasks import TaskHandle
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.model.instants import span_micros
from holdfast.model.limits import UNBOUNDED, Limit, parsed_rate
from holdfast.torture.events import (
    CancelAnswered,
    CancelCalled,
    EnqueueCalled,
    PauseAnswered,
    ResetAnswered,
    ResetCalled,
    ResumeAnswered,
    ResumeCalled,
    RetryAnswered,
    RetryCalled,
    Takes,
)
from holdfast.torture.history import now_us
from holdfast.torture.operator_events import LimitAnswered, ScheduleAdded, ScheduleRemoving
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app
from holdfast.torture.work.attempt import taken

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

    async def limit(self, queue: str, limit: Limit) -> None:
        """Set the limit of a queue; once is enough, and every reply says that it is set."""
        sent_us = now_us()
        with contextlib.suppress(StoreUnavailable, OutcomeUnknown):
            await app.queues.limit(queue, limit)
            rate = None if limit.rate is None else parsed_rate(limit.rate)
            recorder.write(
                LimitAnswered(
                    at_us=now_us(),
                    queue=queue,
                    sent_us=sent_us,
                    running=limit.running or UNBOUNDED,
                    step_us=0 if rate is None else rate.span // rate.jobs,
                    burst=limit.burst,
                )
            )

    async def schedule(self, name: str, task: TaskHandle[..., Any], seconds: float) -> None:
        """Let a task run every second for some time, also at times that no worker was there to see."""
        call = EnqueueCalled(
            at_us=now_us(),
            call=name,
            jobs=(),
            task=task.name,
            queue=task.task.queue,
            takes=taken(Takes.TRANSACTION),
            max_attempts=task.task.max_attempts,
        )
        recorder.write(call)  # of all jobs of the schedule, which have it as a header
        sent_us = now_us()
        every, headers = timedelta(seconds=1), {"call": name}
        await _answered(lambda: app.schedules.add(name, task.name, every=every, missed="all", headers=headers))
        recorder.write(ScheduleAdded(at_us=now_us(), schedule=name, sent_us=sent_us, every_us=span_micros(every)))
        await self.after(seconds)
        recorder.write(ScheduleRemoving(at_us=now_us(), schedule=name))
        await _answered(lambda: app.schedules.remove(name))

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


async def _answered(call: Callable[[], Awaitable[object]]) -> None:
    """Send what may be repeated, until there is a reply."""
    while True:
        try:
            await call()
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(_AGAIN)
        else:
            return


async def _done(call: Awaitable[bool]) -> bool | None:
    """Return the reply to a call; None if its outcome is unknown."""
    try:
        return await call
    except StoreUnavailable:
        return False
    except OutcomeUnknown:
        return None
