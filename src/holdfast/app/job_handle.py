"""The handle of a job: its state, its result, and how to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.app.sync import Blocking, Sync
from holdfast.model.duration import to_span
from holdfast.model.ids import is_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.runtime.payload import decode_result
from holdfast.runtime.type_variables import Result_co
from holdfast.store.values import Cancellation, JobDetails

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")
_LOOK_EVERY = 0.25


class JobHandle(Generic[Result_co]):
    """A job by its id. `JobHandle[str]` is one whose handler returns a string."""

    __slots__ = ("_app", "_returns", "created", "id")

    def __init__(self, app: App, job_id: str, *, created: bool = True, returns: Any = Any) -> None:
        self._app = app
        self._returns = returns
        self.id = job_id
        self.created = created
        """False if the job existed: the enqueue was a repeat, or was repeated after a lost reply."""

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
    async def result(self) -> Result_co: ...
    @overload
    async def result(self, type: type[T]) -> T: ...
    @overload
    async def result(self, type: Any) -> Any: ...
    async def result(self, type: Any = None) -> Any:  # noqa: A002 - as msgspec calls it; the caller's type
        """Return the result of a completed job, as the handler's return annotation or as `type`.

        None if it has none, is not completed or does not exist. Raises `PayloadError` if the handler's value could not
        be stored.
        """
        backend = await self._app.opened()
        kept = await backend.jobs.result(self.id) if is_id(self.id) else None
        return decode_result(kept, self._returns if type is None else type)

    async def cancel(self, reason: str = "") -> Cancellation:
        """Cancel the job if it is not running, otherwise ask its worker to; see `app.jobs.cancel`."""
        return await self._app.jobs.cancel(self.id, reason)

    async def wait(self, timeout: float | timedelta | None = None) -> JobState:
        """Wait until the job has ended and return its state; raises `TimeoutError` with the state last seen."""
        limit = None if timeout is None else to_span(timeout, "timeout").total_seconds()
        backend = await self._app.opened()
        loop = asyncio.get_running_loop()
        notified = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed, and this wait with it
                loop.call_soon_threadsafe(notified.set)

        unlisten = backend.notifier.listen(wake)
        state: JobState | None = None
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                while (state := await self.state()) not in FINAL_STATES:
                    notified.clear()
                    timer = loop.call_later(_LOOK_EVERY, notified.set)
                    await notified.wait()
                    timer.cancel()
                return state
        except TimeoutError:
            if limit is None or not scope.expired():
                raise
            seen = "has not ended" if state is None else f"is still {state}"
            raise TimeoutError(f"job {self.id} {seen} after {limit:g} s") from None
        finally:
            unlisten()


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
        def result(self) -> Result_co: ...
        @overload
        def result(self, type: type[T]) -> T: ...
        @overload
        def result(self, type: Any) -> Any: ...
        def result(self, type: Any = None) -> Any: ...  # noqa: A002, D102
    else:
        result = Blocking(JobHandle.result)


class JobHandles(Sequence[JobHandle[Result_co]]):
    """The handles of many jobs, each created on access: most of a hundred thousand are never used."""

    __slots__ = ("_app", "_created", "_ids", "_returns")

    def __init__(self, app: App, ids: Sequence[str], created: Sequence[bool], returns: Any = Any) -> None:
        self._app = app
        self._returns = returns
        self._ids = ids
        self._created = created

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
            return JobHandles(self._app, self._ids[index], self._created[index], self._returns)
        return JobHandle(self._app, self._ids[index], created=self._created[index], returns=self._returns)

    def __repr__(self) -> str:
        """Show the number of jobs."""
        return f"<{len(self._ids)} jobs>"
