"""Operator actions on jobs and queues; the command line calls the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

from holdfast.app.sync import Blocking, Sync
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
_MOST = 1_000_000_000  # rows: a number that every store accepts
_PRINTABLE_BITS = 128


def check_limit(limit: object) -> int:
    """Return a valid limit of rows or raise `ConfigError`: a store may read a negative limit as no limit."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST:
        # An int of thousands of digits cannot even be printed.
        is_vast = isinstance(limit, int) and limit.bit_length() > _PRINTABLE_BITS
        message = f"limit={'…' if is_vast else repr(limit)} is not a whole number from 1 to {_MOST}"
        raise ConfigError(message)
    return limit


def _check_cursor(cursor: object) -> str | None:
    if cursor is not None and not isinstance(cursor, str):
        raise _invalid_cursor(cursor)
    return cursor


def _invalid_cursor(cursor: object) -> ConfigError:
    return ConfigError(f"invalid cursor={cursor!r}: pass page.cursor, or leave it out")


class Jobs:
    """`app.jobs`: inspect, cancel, retry and copy jobs."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncJobs:
        """The same with blocking calls."""
        return SyncJobs(self, self._app.portal)

    async def show(self, job_id: str | UUID) -> JobDetails:
        """Return the details of a job; raises `JobNotFound`."""
        return await (await self._app.opened(install=False)).insight.job(find_by(job_id))

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
            message = f"{state!r} is not a state; the states are {', '.join(JobState)}"
            raise ConfigError(message) from None
        selection = JobFilter(
            wanted,
            None if queue is None else check_name("queue", queue),
            None if task is None else check_name("task", task),
            _check_cursor(cursor),
            check_limit(limit),
        )
        insight = (await self._app.opened(install=False)).insight
        try:
            return await insight.jobs(selection)
        except (ValueError, OverflowError) as error:
            if cursor is None:
                raise
            raise _invalid_cursor(cursor) from error

    async def cancel(self, job_id: str | UUID, reason: str = "") -> Cancellation:
        """Cancel a job that is not running, otherwise ask its worker to abort it.

        A job claimed by `app.claim` is not aborted: it is cancelled when it would run again.
        """
        if not isinstance(cast("object", reason), str):
            given = f"the reason to cancel a job is of type {type(cast('object', reason)).__name__}"
            raise ConfigError(f"{given}: pass a text that says why, or leave it out")
        text = clean(reason or "cancelled by an operator", _REASON_LIMIT)
        return await (await self._app.opened(install=False)).jobs.cancel(find_by(job_id), text)

    async def retry(self, job_id: str | UUID) -> bool:
        """Make a failed or cancelled job ready again with all its attempts; False if it is in another state."""
        return await (await self._app.opened(install=False)).jobs.retry(find_by(job_id))

    async def copy(self, job_id: str | UUID, *, copy_id: str | UUID | None = None) -> str:
        """Enqueue a copy of a job in any state, to run at once; return the copy's id. Raises `JobNotFound`.

        `copy_id` (a UUID) makes it safe to repeat; `OutcomeUnknown` carries the id generated here.
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
        """Revoke the lease of a running job; False if it is not running.

        The job is ready again, at its old turn. If its cancellation was requested, it is cancelled instead.
        """
        return await (await self._app.opened(install=False)).jobs.reset(find_by(job_id))

    async def counts(self, since: float | timedelta = timedelta(hours=1)) -> Sequence[Count]:
        """Return the counts per minute, queue and task."""
        return await (await self._app.opened(install=False)).insight.counts(to_span(since, "since"))


class SyncJobs(Sync[Jobs]):
    """`app.jobs.sync`."""

    show = Blocking(Jobs.show)
    list = Blocking(Jobs.list)
    cancel = Blocking(Jobs.cancel)
    retry = Blocking(Jobs.retry)
    copy = Blocking(Jobs.copy)
    reset = Blocking(Jobs.reset)
    counts = Blocking(Jobs.counts)


class Queues:
    """`app.queues`: list, measure, pause and resume queues."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncQueues:
        """The same with blocking calls."""
        return SyncQueues(self, self._app.portal)

    async def list(self) -> Sequence[QueueView]:
        """List all queues with their counts."""
        return await (await self._app.opened(install=False)).insight.queues()

    async def depth(self, queue: str) -> int:
        """Return how many jobs of the queue wait for a worker: those that are ready, not those scheduled for later."""
        return await (await self._app.opened(install=False)).insight.depth(check_name("queue", queue))

    async def pause(self, queue: str) -> bool:
        """Allow no claims from the queue; False if it was paused already."""
        return await (await self._app.opened(install=False)).queues.pause(check_name("queue", queue))

    async def resume(self, queue: str) -> bool:
        """Allow claims again; False if it was not paused."""
        return await (await self._app.opened(install=False)).queues.resume(check_name("queue", queue))


class SyncQueues(Sync[Queues]):
    """`app.queues.sync`."""

    list = Blocking(Queues.list)
    depth = Blocking(Queues.depth)
    pause = Blocking(Queues.pause)
    resume = Blocking(Queues.resume)
