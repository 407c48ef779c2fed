"""What a person does to jobs, queues, leases and workers; the command line and the server call the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

from holdfast.app.sync import Sync
from holdfast.app.sync_types import SyncJobs, SyncQueues
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.jobs.enqueue import unknown_enqueue
from holdfast.model.duration import to_span
from holdfast.model.ids import check_id, find_by, id_text, new_id
from holdfast.model.job import JobState, NewJob
from holdfast.model.names import check_name
from holdfast.runtime.text import clean
from holdfast.store.values import Cancellation, Count, JobDetails, JobFilter, JobPage, QueueView

if TYPE_CHECKING:
    from holdfast.app.app import App

_REASON_LIMIT = 2048
_MOST = 1_000_000_000  # rows: more than anybody wants at once, and a number that every store can take
_PRINTABLE_BITS = 128


def check_limit(limit: object) -> int:
    """Return how many rows are asked for, or refuse it: a store may read a negative limit as none at all."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST:
        # An int of thousands of digits cannot even be printed.
        is_vast = isinstance(limit, int) and limit.bit_length() > _PRINTABLE_BITS
        message = f"limit={'…' if is_vast else repr(limit)} is not a whole number from 1 to {_MOST}"
        raise ConfigError(message)
    return limit


def _check_cursor(cursor: object) -> str | None:
    if cursor is not None and not isinstance(cursor, str):
        raise _no_cursor(cursor)
    return cursor


def _no_cursor(cursor: object) -> ConfigError:
    return ConfigError(f"cursor={cursor!r} is none that a page has given: pass page.cursor, or leave it out")


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
        return await (await self._app.opened()).insight.job(find_by(job_id))

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
        selection = JobFilter(
            wanted,
            None if queue is None else check_name("queue", queue),
            None if task is None else check_name("task", task),
            _check_cursor(cursor),
            check_limit(limit),
        )
        insight = (await self._app.opened()).insight
        try:
            return await insight.jobs(selection)
        except (ValueError, OverflowError) as error:
            if cursor is None:
                raise
            raise _no_cursor(cursor) from error

    async def cancel(self, job_id: str | UUID, reason: str = "") -> Cancellation:
        """Cancel a job that has not begun, or ask the worker that runs it.

        Whoever has claimed it by `app.claim` is not told: then it is cancelled once it would run again.
        """
        if not isinstance(cast("object", reason), str):
            given = f"the reason to cancel a job is of type {type(cast('object', reason)).__name__}"
            raise ConfigError(f"{given}: pass a text that says why, or leave it out")
        text = clean(reason or "cancelled by a person", _REASON_LIMIT)
        return await (await self._app.opened()).jobs.cancel(find_by(job_id), text)

    async def retry(self, job_id: str | UUID) -> bool:
        """Send a failed or cancelled job back with a fresh budget; False if it is in another state."""
        return await (await self._app.opened()).jobs.retry(find_by(job_id))

    async def copy(self, job_id: str | UUID, *, copy_id: str | UUID | None = None) -> str:
        """Enqueue a copy of a job, whatever its state, to run at once; return the copy's id. Raises `JobNotFound`.

        `copy_id` (a UUID) makes it safe to repeat; `OutcomeUnknown` tells the one that was made here.
        """
        own_id = new_id() if copy_id is None else check_id(str(copy_id))
        if own_id == id_text(job_id):
            raise ConfigError(f"copy_id={own_id!r} is the id of the original: pass another, or leave it out")
        details = await self.show(job_id)
        job = details.job
        copy = NewJob(
            id=own_id,
            queue=job.queue,
            task=job.task,
            payload=details.payload,
            headers=details.headers or None,
            priority=job.priority,
            max_attempts=job.max_attempts,
            timeout=details.timeout,
            order_key=job.order_key,
        )
        try:
            await self._app.enqueue_new([copy])
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, [copy]) from error
        return copy.id

    async def reset(self, job_id: str | UUID) -> bool:
        """Take the lease of a running job away; False if it does not run.

        The job is ready again, at its old turn; one that somebody asked to cancel is cancelled instead.
        """
        return await (await self._app.opened()).jobs.reset(find_by(job_id))

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
