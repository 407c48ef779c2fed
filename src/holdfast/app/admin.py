"""Operator actions on jobs and queues; the command line calls the same."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

from holdfast.app.bulk import FINISHED, NO_AGE, WAITING, JobSelection, cancel_batch, check_reason, delete_batch
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.jobs.enqueue import unknown_enqueue
from holdfast.model.duration import to_span
from holdfast.model.explanation import Explanation, explain
from holdfast.model.ids import check_id, find_by, new_id
from holdfast.model.job import JobState, JobStateName, NewJob
from holdfast.model.limits import Limit, LimitKey, check_limited
from holdfast.model.names import check_name
from holdfast.model.numbers import whole_number
from holdfast.runtime.unknown_queue import unknown_queue
from holdfast.store.values import Cancellation, Count, JobDetails, JobFilter, JobGraph, JobPage, QueueView
from holdfast.store.verbs.job_admin import not_found

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.jobs")
_MOST = 1_000_000_000  # rows: a number that every store accepts


def check_limit(limit: object) -> int:
    """Return a valid limit of rows or raise `ConfigError`: a store may read a negative limit as no limit."""
    return whole_number(limit, "limit", 1, _MOST)


def _check_state(state: object, allowed: Iterable[JobState]) -> JobState:
    states = list(allowed)
    if state not in states:
        raise ConfigError(f"{state!r} is not a state of these jobs: pass one of {', '.join(states)}")
    return JobState(cast("str", state))


def check_selection(
    state: object, allowed: Sequence[JobState], queue: str | None, task: str | None, *, older_than: timedelta = NO_AGE
) -> JobSelection:
    """Return a valid selection of jobs in one of the allowed states, or raise `ConfigError`."""
    return JobSelection(
        _check_state(state, allowed),
        None if queue is None else check_name("queue", queue),
        None if task is None else check_name("task", task),
        older_than,
    )


def _check_cursor(cursor: object) -> str | None:
    if cursor is not None and not isinstance(cursor, str):
        raise _invalid_cursor(cursor)
    return cursor


def _invalid_cursor(cursor: object) -> ConfigError:
    return ConfigError(f"invalid cursor={cursor!r}: pass page.cursor, or leave it out")


def copy_of(details: JobDetails, copy_id: str) -> NewJob:
    """Return a copy of a job, to run at once; raises `ConfigError` for an id that is invalid or the original's."""
    job, own_id = details.job, check_id(copy_id)
    if own_id == job.id:
        raise ConfigError(f"copy_id={own_id!r} is the id of the original: pass another, or leave it out")
    return NewJob(
        id=own_id,
        queue=job.queue,
        task=job.task,
        payload=details.payload,
        headers=details.headers or None,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=details.timeout,
        order_key=job.order_key,
        limit_key=job.limit_key,
    )


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

    async def explain(self, job_id: str | UUID) -> Explanation:
        """Return why a job is not running, as data; raises `JobNotFound`.

        `holdfast job explain` says the same in one sentence.
        """
        return explain(await (await self._app.opened(install=False)).insight.job_facts(find_by(job_id)))

    async def graph(self, job_id: str | UUID, *, limit: int = 200) -> JobGraph:
        """Return the jobs that are connected with this one by `after`, at most `limit`; raises `JobNotFound`."""
        return await (await self._app.opened(install=False)).insight.graph(find_by(job_id), check_limit(limit))

    async def list(
        self,
        state: JobState | JobStateName,
        *,
        queue: str | None = None,
        task: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """List jobs in one state, a page at a time."""
        selection = JobFilter(
            _check_state(state, JobState),
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
        text = check_reason(reason)
        return await (await self._app.opened(install=False)).jobs.cancel(find_by(job_id), text)

    async def cancel_all(
        self,
        state: JobState | str,
        *,
        queue: str | None = None,
        task: str | None = None,
        reason: str = "",
        limit: int | None = None,
    ) -> Mapping[Cancellation, int]:
        """Do what `cancel` does to all jobs in a state that has not ended; return how many were answered in each way.

        The jobs are selected first, then cancelled in batches. `limit` bounds their number; a repeat does the rest.
        """
        selection = check_selection(state, (*WAITING, JobState.RUNNING), queue, task)
        text = check_reason(reason)
        counts: Counter[Cancellation] = Counter()
        for ids in (await selection.ids(self._app, None if limit is None else check_limit(limit))).batches():
            counts += await cancel_batch(self._app, ids, text)
        return counts

    async def delete(self, job_id: str | UUID) -> None:
        """Delete a completed, failed or cancelled job with its records. Raises `JobNotFound`.

        Raises `ConfigError` for a job that has not ended. The id is forgotten, as after the job's retention: an enqueue
        with it creates a new job.
        """
        known_id = find_by(job_id)
        answers = await (await self._app.opened(install=False)).jobs.delete([known_id], FINISHED, NO_AGE)
        if known_id not in answers:
            raise not_found(known_id)
        state = answers[known_id]
        if state is not None:
            remedy = "cancel it first, and wait until it has ended" if state is JobState.RUNNING else "cancel it first"
            raise ConfigError(f"job {known_id} is {state}, and only finished jobs can be deleted: {remedy}")

    async def delete_all(
        self,
        state: JobState | str,
        *,
        queue: str | None = None,
        task: str | None = None,
        older_than: float | timedelta = NO_AGE,
        limit: int | None = None,
    ) -> int:
        """Delete all jobs that ended in this state, at least `older_than` ago; return how many.

        The jobs are selected first, then deleted in batches. `limit` bounds their number; a repeat does the rest.
        """
        selection = check_selection(state, FINISHED, queue, task, older_than=to_span(older_than, "older_than"))
        deleted = 0
        for ids in (await selection.ids(self._app, None if limit is None else check_limit(limit))).batches():
            deleted += await delete_batch(self._app, ids, selection)
        return deleted

    async def retry(self, job_id: str | UUID) -> bool:
        """Make a failed or cancelled job ready again with all its attempts; False if it is in another state."""
        return await (await self._app.opened(install=False)).jobs.retry(find_by(job_id))

    async def copy(self, job_id: str | UUID, *, copy_id: str | UUID | None = None) -> str:
        """Enqueue a copy of a job in any state, to run at once; return the copy's id. Raises `JobNotFound`.

        `copy_id` (a UUID) makes it safe to repeat; `OutcomeUnknown` carries the id generated here.
        """
        copy = copy_of(await self.show(job_id), new_id() if copy_id is None else str(copy_id))
        try:
            await self._app.enqueue_new([copy])
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, [copy]) from error
        return copy.id

    async def run(self, job_id: str | UUID) -> bool:
        """Make a scheduled job due now, also one that waits for its next attempt; False if it is not scheduled."""
        return await (await self._app.opened(install=False)).jobs.run(find_by(job_id))

    async def reset(self, job_id: str | UUID) -> bool:
        """Revoke the lease of a running job; False if it is not running.

        The job is ready again, at its old turn. If its cancellation was requested, it is cancelled instead.
        """
        return await (await self._app.opened(install=False)).jobs.reset(find_by(job_id))

    async def counts(self, since: float | timedelta = timedelta(hours=1), *, by_minute: bool = True) -> Sequence[Count]:
        """Return the counts per minute, queue and task; with `by_minute=False` one sum per queue and task."""
        insight = (await self._app.opened(install=False)).insight
        return await insight.counts(to_span(since, "since"), by_minute=by_minute)


class SyncJobs(Sync[Jobs]):
    """`app.jobs.sync`."""

    show = Blocking(Jobs.show)
    explain = Blocking(Jobs.explain)
    graph = Blocking(Jobs.graph)
    list = Blocking(Jobs.list)
    cancel = Blocking(Jobs.cancel)
    cancel_all = Blocking(Jobs.cancel_all)
    delete = Blocking(Jobs.delete)
    delete_all = Blocking(Jobs.delete_all)
    retry = Blocking(Jobs.retry)
    copy = Blocking(Jobs.copy)
    run = Blocking(Jobs.run)
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

    async def list(self, *, most: int | None = None) -> Sequence[QueueView]:
        """List all queues with their counts.

        With `most`, counting stops at about this many jobs of each task and state, so that the call stays cheap however
        many jobs wait; `at_least` of a queue names the states of which there may be more.
        """
        limit = None if most is None else check_limit(most)
        return await (await self._app.opened(install=False)).insight.queues(limit)

    async def depth(self, queue: str) -> int:
        """Return how many jobs of the queue wait for a worker: those that are ready, not those scheduled for later."""
        return await (await self._app.opened(install=False)).insight.depth(check_name("queue", queue))

    async def pause(self, queue: str) -> bool:
        """Allow no claims from the queue; False if it was paused already. Warns of a queue that is unknown."""
        backend = await self._app.opened(install=False)
        known = {task.queue for task in self._app.tasks}
        if check_name("queue", queue) not in known:
            known.update(view.name for view in await backend.insight.queues(1))
        changed = await backend.queues.pause(queue)
        if queue not in known:
            _logger.warning("paused, but %s", unknown_queue(queue, known))
        return changed

    async def resume(self, queue: str) -> bool:
        """Allow claims again; False if it was not paused."""
        return await (await self._app.opened(install=False)).queues.resume(check_name("queue", queue))

    async def limit(self, queue: str, limit: Limit | None) -> None:
        """Set how many jobs of the queue run at once, and at what rate they start; None removes the limit."""
        key = LimitKey("queue", check_name("queue", queue))
        await (await self._app.opened(install=False)).queues.limit(key, check_limited(limit))


class SyncQueues(Sync[Queues]):
    """`app.queues.sync`."""

    list = Blocking(Queues.list)
    depth = Blocking(Queues.depth)
    pause = Blocking(Queues.pause)
    resume = Blocking(Queues.resume)
    limit = Blocking(Queues.limit)
