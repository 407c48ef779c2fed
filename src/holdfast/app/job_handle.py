"""The handle of a job: its state, its result, and how to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.app.sync import Blocking, Sync
from holdfast.errors import JobCancelled, JobFailed
from holdfast.model.duration import to_span
from holdfast.model.ids import find_by
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.runtime.effect import is_inside
from holdfast.runtime.other_queues import JOB_CALLS, AnswersOtherCalls
from holdfast.runtime.payload import decode_result
from holdfast.runtime.type_variables import Result_co
from holdfast.runtime.unawaited import MethodCall, reports_unawaited
from holdfast.store.job_lists import SeenJob
from holdfast.store.values import Cancellation, Enqueued, JobDetails
from holdfast.store.verbs.job_admin import not_found

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")


class JobHandle(AnswersOtherCalls, Generic[Result_co]):
    """A job by its id. `JobHandle[str]` is one whose handler returns a string."""

    __slots__ = ("_app", "_returns", "created", "id")
    _other_calls = JOB_CALLS

    def __init__(self, app: App, job_id: str, *, created: bool = True, returns: Any = Any) -> None:
        self._app = app
        self._returns = returns
        self.id = job_id
        self.created = created
        """False if the job existed: the enqueue was a repeat, or another job holds its unique key."""

    def __repr__(self) -> str:
        """Show the id, never the arguments."""
        return f"<job {self.id}>"

    @property
    def sync(self) -> SyncJob[Result_co]:
        """The same with blocking calls."""
        return SyncJob(self, self._app.portal)

    async def details(self) -> JobDetails:
        """Return the details of the job; raises `JobNotFound`."""
        return await self._app.jobs.show(self.id)

    async def state(self) -> JobState:
        """Return the state of the job; raises `JobNotFound`."""
        return (await self.details()).job.state

    @overload
    async def result(self, *, timeout: float | timedelta | None = None) -> Result_co: ...
    @overload
    async def result(self, type: type[T], *, timeout: float | timedelta | None = None) -> T: ...
    @overload
    async def result(self, type: Any, *, timeout: float | timedelta | None = None) -> Any: ...
    @reports_unawaited("there is no result", "job")  # type: ignore[misc]  # mypy wants `self` by name
    async def result(self, call: MethodCall, /, type: Any = None, *, timeout: float | timedelta | None = None) -> Any:  # noqa: A002
        """Wait for the end of the job and return what its handler returned.

        Raises `JobFailed` or `JobCancelled` if it ended so, `TimeoutError` if it has not ended within `timeout` seconds
        (0: do not wait; None: no limit), and `JobNotFound`. The value is decoded to the handler's return annotation or
        to `type`; raises `PayloadError` if it is not one, or could not be stored.
        """
        call.is_started = True
        job = await self._end(timeout)
        if job.state == JobState.COMPLETED:
            return decode_result(job.result, self._returns if type is None else type)
        details = await self.details()
        raise (_cancelled(details) if job.state == JobState.CANCELLED else _failed(details))

    @reports_unawaited("nothing was cancelled", "job")
    async def cancel(self, call: MethodCall, /, reason: str = "") -> Cancellation:
        """Cancel the job if it is not running, otherwise ask its worker to; see `app.jobs.cancel`."""
        call.is_started = True
        return await self._app.jobs.cancel(self.id, reason)

    async def wait(self, timeout: float | timedelta | None = None) -> JobState:
        """Wait until the job has ended and return its state; raises `TimeoutError` with the state last seen.

        None waits without a limit, 0 does not wait.
        """
        return JobState((await self._end(timeout)).state)

    async def _end(self, timeout: float | timedelta | None) -> SeenJob:
        limit = None if timeout is None else to_span(timeout, "timeout").total_seconds()
        find_by(self.id)  # raises if no job can have such an id
        backend = await self._app.opened(install=False)
        if limit == 0 or is_inside(backend):  # a look from inside a transaction sees what that has written
            found = await backend.insight.states([self.id])
            if not found:
                raise not_found(self.id)
            if found[0].state in FINAL_STATES:
                return found[0]
            if limit == 0:
                raise TimeoutError(f"job {self.id} is {found[0].state}, and has not ended yet")
        waits = self._app.waits.here()
        waiter = waits.add(self.id)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await waiter.ended
        except TimeoutError:
            if limit is None or not scope.expired():
                raise
            seen = "has not ended" if waiter.seen is None else f"is still {waiter.seen}"
            raise TimeoutError(f"job {self.id} {seen} after {limit:g} s") from None
        finally:
            waits.remove(self.id, waiter)


def handle_of(app: App, job_id: str, answer: Enqueued, returns: Any) -> JobHandle[Any]:
    """Return the handle for the answer to an enqueue under this id."""
    return JobHandle(app, answer if isinstance(answer, str) else job_id, created=answer is True, returns=returns)


def _failed(details: JobDetails) -> JobFailed:
    job = details.job
    last = details.attempts[-1] if details.attempts else None
    error_class, message = (None, None) if last is None else (last.error_class, last.message)
    return JobFailed(job.id, job.task, attempts=job.attempt, error_class=error_class or "", error_message=message or "")


def _cancelled(details: JobDetails) -> JobCancelled:
    return JobCancelled(details.job.id, details.job.task, reason=details.job.reason or "")


class SyncJob(Sync[JobHandle[Result_co]], Generic[Result_co]):
    """`job.sync`."""

    id: str
    created: bool
    details = Blocking(JobHandle[Any].details)
    state = Blocking(JobHandle[Any].state)
    cancel = Blocking(JobHandle[Any].cancel)
    wait = Blocking(JobHandle[Any].wait)
    if TYPE_CHECKING:

        @overload
        def result(self, *, timeout: float | timedelta | None = None) -> Result_co: ...
        @overload
        def result(self, type: type[T], *, timeout: float | timedelta | None = None) -> T: ...
        @overload
        def result(self, type: Any, *, timeout: float | timedelta | None = None) -> Any: ...
        def result(self, type: Any = None, *, timeout: Any = None) -> Any: ...  # noqa: A002, D102
    else:
        result = Blocking(JobHandle.result)


class JobHandles(Sequence[JobHandle[Result_co]]):
    """The handles of many jobs, each created on access: most of a hundred thousand are never used."""

    __slots__ = ("_answers", "_app", "_ids", "_returns")

    def __init__(self, app: App, ids: Sequence[str], answers: Sequence[Enqueued], returns: Any = Any) -> None:
        self._app = app
        self._returns = returns
        self._ids = ids
        self._answers = answers

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> JobHandle[Result_co]: ...
    @overload
    def __getitem__(self, index: slice) -> JobHandles[Result_co]: ...
    def __getitem__(self, index: int | slice) -> JobHandle[Result_co] | JobHandles[Result_co]:
        """Return one handle, or a slice of them."""
        if isinstance(index, slice):
            return JobHandles(self._app, self._ids[index], self._answers[index], self._returns)
        return handle_of(self._app, self._ids[index], self._answers[index], self._returns)

    def __repr__(self) -> str:
        """Show the number of jobs."""
        return f"<{len(self._ids)} jobs>"
