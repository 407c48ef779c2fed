"""A job claimed by `app.claim`, for callers that run their own loop.

The lease is not extended automatically: finish, extend or release the job before it expires. Every call carries the
fence and raises `LeaseLost` if the job was claimed by another worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConfigError, LeaseLost, TaskNotFound
from holdfast.jobs.context import Context
from holdfast.jobs.run import UnknownTask, outcome_of_error
from holdfast.jobs.task import Task
from holdfast.model.duration import to_span
from holdfast.model.job import LeasedJob
from holdfast.model.names import check_name
from holdfast.model.outcome import REASON_LIMIT, Cancelled, Completed, Failed, Failure, Outcome, Retried
from holdfast.runtime.failure import describe, describe_reason
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.runtime.text import clean
from holdfast.store.values import Finish, Verdict

if TYPE_CHECKING:
    from holdfast.app.app import App


class ClaimedJob:
    """A claimed job, its arguments, and the five ways to end the attempt."""

    def __init__(self, app: App, job: LeasedJob, lease: timedelta) -> None:
        self._app = app
        self.job = job
        self.span = lease
        """The length of the lease."""

    def __repr__(self) -> str:
        """Show the job, never its arguments."""
        return f"<claimed job {self.job.id} ({self.job.task}), fence {self.job.fence}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def sync(self) -> SyncClaimedJob:
        """The same with blocking calls."""
        return SyncClaimedJob(self, self._app.portal)

    @property
    def task(self) -> Task:
        """The task of the job; raises `TaskNotFound` if it is not registered."""
        return self._app.tasks.get(self.job.task)

    def belongs_to(self, app: App) -> bool:
        """Return whether this app has claimed the job."""
        return self._app is app

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the call, decoded to the types of its task."""
        return self.task.signature.decode(self.job.payload)

    def context(self) -> Context:
        """Return a context, for `ctx.transaction()` and `ctx.progress()`; call it in a running event loop."""
        return Context(self.job, self._app.backend, lease=self.span)

    async def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease to `duration` from now (by default to its full length)."""
        span = self.span if duration is None else to_span(duration, "duration")
        self._require(await self._app.backend.jobs.extend(self.job.lease, span))

    async def complete(self, result: object = None) -> None:
        """Complete the job."""
        await self._finish(Completed(encode_result_or_reason(result)))

    async def retry(self, error: BaseException | str, delay: float | timedelta | None = None) -> None:
        """End the attempt as failed; the job runs again as its task's policy says, or after `delay`.

        A task that is not registered has the default policy.
        """
        await self._finish(retry_outcome(self, error, delay))

    async def fail(self, error: BaseException | str) -> None:
        """End the job as failed, even if attempts are left."""
        await self._finish(failed_outcome(error))

    async def cancel(self, reason: str = "") -> None:
        """End the job as cancelled."""
        await self._finish(Cancelled(clean(_checked_reason(reason) or "cancelled by its worker", REASON_LIMIT)))

    async def release(self) -> None:
        """Release the job without using an attempt."""
        (verdict,) = await self._app.backend.jobs.release([self.job.lease], started=False)
        self._require(verdict)

    async def _finish(self, outcome: Outcome) -> None:
        (verdict,) = await self._app.backend.jobs.finish([Finish(self.job.lease, outcome)])
        self._require(verdict)

    def _require(self, verdict: Verdict) -> None:
        if verdict is Verdict.LOST:
            message = f"job {self.job.id} is no longer leased under fence {self.job.fence}; nothing was written"
            raise LeaseLost(message)


class SyncClaimedJob(Sync[ClaimedJob]):
    """`job.sync` of a claimed job."""

    id: str
    job: LeasedJob
    span: timedelta
    extend = Blocking(ClaimedJob.extend)
    complete = Blocking(ClaimedJob.complete)
    retry = Blocking(ClaimedJob.retry)
    fail = Blocking(ClaimedJob.fail)
    cancel = Blocking(ClaimedJob.cancel)
    release = Blocking(ClaimedJob.release)

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the call, decoded to the types of its task."""
        return self.target.arguments()

    def context(self) -> Context:
        """Return a context, for `ctx.sync.transaction()` and `ctx.sync.progress()`."""

        async def make() -> Context:
            return self.target.context()

        return self.portal.call(make())


def retry_outcome(job: ClaimedJob, error: BaseException | str, delay: float | timedelta | None) -> Outcome:
    """Return the outcome of a failed attempt: a retry after `delay` or by the policy, if attempts are left."""
    if delay is not None:
        failure = _failure(error)
        span = to_span(delay, "delay")
        return Failed(failure) if job.job.is_last_attempt else Retried(span, failure)
    raised = error if isinstance(error, BaseException) else RuntimeError(_checked_text(error))
    return outcome_of_error(_task_or_unknown(job), job.job, raised)


def _task_or_unknown(job: ClaimedJob) -> Task | UnknownTask:
    """Return the task of a job; an attempt can end without its handler."""
    try:
        return job.task
    except TaskNotFound:
        return UnknownTask(job.job.task)


def failed_outcome(error: BaseException | str) -> Outcome:
    """Return the outcome of a job that ends as failed."""
    return Failed(_failure(error))


def _failure(error: BaseException | str) -> Failure:
    return describe(error) if isinstance(error, BaseException) else describe_reason("Failed", _checked_text(error))


def _checked_text(error: object) -> str:
    """Return the description of an error; raise `ConfigError` if it is not a text."""
    if not isinstance(error, str):
        message = f"an error of type {_kind(error)} cannot be recorded: pass the exception, or a text"
        raise ConfigError(message)
    return error


def _checked_reason(reason: object) -> str:
    if not isinstance(reason, str):
        message = f"the reason to cancel a job is of type {_kind(reason)}: pass a text that says why, or leave it out"
        raise ConfigError(message)
    return reason


def _kind(value: object) -> str:
    return type(value).__name__


def known_tasks(app: App, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the tasks to claim: the given ones, or all that are registered."""
    if isinstance(names, str):
        message = f"tasks={names!r} is a string: pass a list, as in tasks=[{names!r}]"
        raise ConfigError(message)
    if names is not None:
        return tuple(check_name("task", name) for name in names)
    if not len(app.tasks):
        message = "no task is registered, so nothing can be claimed: register one with @app.task, or pass tasks=[…]"
        raise TaskNotFound(message)
    return app.tasks.names
