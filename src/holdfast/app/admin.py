"""What a person does to jobs, queues, leases and workers; the command line and the server call the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

from holdfast.app.sync import Sync
from holdfast.app.sync_types import SyncJobs, SyncQueues
from holdfast.errors import ConfigError
from holdfast.model.duration import to_span
from holdfast.model.ids import id_text, new_id
from holdfast.model.job import JobState, NewJob
from holdfast.model.names import check_name
from holdfast.runtime.text import clean
from holdfast.store.values import Cancellation, Count, JobDetails, JobFilter, JobPage, QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

_REASON_LIMIT = 2048


def check_limit(limit: object) -> int:
    """Return how many rows are asked for, or refuse it: a store may read a negative limit as none at all."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"limit={limit!r} is not a whole number from 1 on"
        raise ConfigError(message)
    return limit


class Jobs:
    """`app.jobs`: look at jobs and change their fate."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncJobs:
        """The same with blocking calls."""
        return cast("SyncJobs", Sync(self, self._app.portal))

    async def show(self, job_id: str | UUID) -> JobDetails:
        """Return all that is known of a job; raises `JobNotFound`."""
        return await (await self._app.opened()).insight.job(id_text(job_id))

    async def list(
        self,
        state: JobState | str,
        *,
        queue: str | None = None,
        task: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """List jobs in one state, a page at a time."""
        try:
            wanted = JobState(state)
        except ValueError:
            message = f"{state!r} is no state: there are {', '.join(JobState)}"
            raise ConfigError(message) from None
        selection = JobFilter(wanted, queue, task, cursor, check_limit(limit))
        insight = (await self._app.opened()).insight
        try:
            return await insight.jobs(selection)
        except (ValueError, OverflowError) as error:
            if cursor is None:
                raise
            message = f"cursor={cursor!r} is none that a page has given: pass page.cursor, or leave it out"
            raise ConfigError(message) from error

    async def cancel(self, job_id: str | UUID, reason: str = "") -> Cancellation:
        """Cancel a job that has not begun, or ask the worker that runs it."""
        text = clean(reason or "cancelled by a person", _REASON_LIMIT)
        return await (await self._app.opened()).jobs.cancel(id_text(job_id), text)

    async def retry(self, job_id: str | UUID) -> bool:
        """Send a failed or cancelled job back with a fresh budget; False if it is in another state."""
        return await (await self._app.opened()).jobs.retry(id_text(job_id))

    async def copy(self, job_id: str | UUID) -> str:
        """Enqueue a copy of a job, whatever its state, to run at once; return the copy's id. Raises `JobNotFound`."""
        details = await self.show(job_id)
        job = details.job
        copy = NewJob(
            id=new_id(),
            queue=job.queue,
            task=job.task,
            payload=details.payload,
            headers=details.headers or None,
            priority=job.priority,
            max_attempts=job.max_attempts,
            timeout=details.timeout,
            order_key=job.order_key,
        )
        await self._app.enqueue_new([copy])
        return copy.id

    async def reset(self, job_id: str | UUID) -> bool:
        """Take the lease of a running job away, so that it runs again at once; False if it does not run."""
        return await (await self._app.opened()).jobs.reset(id_text(job_id))

    async def counts(self, since: float | timedelta = timedelta(hours=1)) -> Sequence[Count]:
        """Return what happened per minute, queue and task."""
        return await (await self._app.opened()).insight.counts(to_span(since, "since"))


class Queues:
    """`app.queues`: look at queues, pause and resume them."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncQueues:
        """The same with blocking calls."""
        return cast("SyncQueues", Sync(self, self._app.portal))

    async def list(self) -> Sequence[QueueView]:
        """List all queues with their counts."""
        return await (await self._app.opened()).insight.queues()

    async def pause(self, queue: str) -> bool:
        """Let nobody claim from the queue; False if it was paused already."""
        return await (await self._app.opened()).queues.pause(check_name("queue", queue))

    async def resume(self, queue: str) -> bool:
        """Allow claims again; False if it was not paused."""
        return await (await self._app.opened()).queues.resume(check_name("queue", queue))
