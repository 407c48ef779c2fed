"""The handle of a job: its state, its result, and how to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from holdfast.app.sync import Blocking, Sync
from holdfast.model.duration import to_span
from holdfast.model.ids import is_id
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.runtime.payload import decode_result
from holdfast.store.values import Cancellation, JobDetails

if TYPE_CHECKING:
    from holdfast.app.app import App

_LOOK_EVERY = 0.25


class JobHandle:
    """A job by its id."""

    __slots__ = ("_app", "created", "id")

    def __init__(self, app: App, job_id: str, *, created: bool = True) -> None:
        self._app = app
        self.id = job_id
        self.created = created
        """False if the job existed: the enqueue was a repeat, or was repeated after a lost reply."""

    def __repr__(self) -> str:
        """Show the id, never the arguments."""
        return f"<job {self.id}>"

    @property
    def sync(self) -> SyncJob:
        """The same with blocking calls."""
        return SyncJob(self, self._app.portal)

    async def details(self) -> JobDetails:
        """Return the details of the job; raises `JobNotFound`."""
        return await self._app.jobs.show(self.id)

    async def state(self) -> JobState:
        """Return the state of the job; raises `JobNotFound`."""
        return (await self.details()).job.state

    async def result(self, type: Any = Any) -> Any:  # noqa: A002 - as msgspec calls it; the caller's type
        """Return the result of a completed job as `type`.

        None if it has none, is not completed or does not exist. Raises `PayloadError` if the handler's value could not
        be stored.
        """
        backend = await self._app.opened(install=False)
        kept = await backend.jobs.result(self.id) if is_id(self.id) else None
        return decode_result(kept, type)

    async def cancel(self, reason: str = "") -> Cancellation:
        """Cancel the job if it is not running, otherwise ask its worker to; see `app.jobs.cancel`."""
        return await self._app.jobs.cancel(self.id, reason)

    async def wait(self, timeout: float | timedelta | None = None) -> JobState:
        """Wait until the job has ended and return its state; raises `TimeoutError` with the state last seen."""
        limit = None if timeout is None else to_span(timeout, "timeout").total_seconds()
        backend = await self._app.opened(install=False)
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


class SyncJob(Sync[JobHandle]):
    """`job.sync`."""

    id: str
    created: bool
    details = Blocking(JobHandle.details)
    state = Blocking(JobHandle.state)
    result = Blocking(JobHandle.result)
    cancel = Blocking(JobHandle.cancel)
    wait = Blocking(JobHandle.wait)


class JobHandles(Sequence[JobHandle]):
    """The handles of many jobs, each created on access: most of a hundred thousand are never used."""

    __slots__ = ("_app", "_created", "_ids")

    def __init__(self, app: App, ids: Sequence[str], created: Sequence[bool]) -> None:
        self._app = app
        self._ids = ids
        self._created = created

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> JobHandle: ...
    @overload
    def __getitem__(self, index: slice) -> JobHandles: ...
    def __getitem__(self, index: int | slice) -> JobHandle | JobHandles:
        """Return one handle, or a slice of them."""
        if isinstance(index, slice):
            return JobHandles(self._app, self._ids[index], self._created[index])
        return JobHandle(self._app, self._ids[index], created=self._created[index])

    def __repr__(self) -> str:
        """Show the number of jobs."""
        return f"<{len(self._ids)} jobs>"
