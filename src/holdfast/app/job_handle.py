"""A job that was enqueued, in the hands of whoever asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, overload

from holdfast.app.sync import Sync
from holdfast.app.sync_types import SyncJob
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
        """False if a job of this id was there already: the enqueue was a repeat, or was repeated after a lost reply."""

    def __repr__(self) -> str:
        """Show the id, never the arguments."""
        return f"<job {self.id}>"

    @property
    def sync(self) -> SyncJob:
        """The same with blocking calls."""
        return cast("SyncJob", Sync(self, self._app.portal))

    async def details(self) -> JobDetails:
        """Return all that is known of the job; raises `JobNotFound`."""
        return await self._app.jobs.show(self.id)

    async def state(self) -> JobState:
        """Return where the job stands."""
        return (await self.details()).job.state

    async def result(self, type: Any = Any) -> Any:  # noqa: A002 - as msgspec calls it; the caller's type
        """Return the result of a completed job as `type`.

        None if it has none, is not completed yet or is not there. Raises `PayloadError` if the handler's value could
        not be kept.
        """
        backend = await self._app.opened()
        kept = await backend.jobs.result(self.id) if is_id(self.id) else None
        return decode_result(kept, type)

    async def cancel(self, reason: str = "") -> Cancellation:
        """Cancel the job if it has not begun, or ask the worker that runs it; see `app.jobs.cancel`."""
        return await self._app.jobs.cancel(self.id, reason)

    async def wait(self, timeout: float | timedelta | None = None) -> JobState:
        """Wait until the job has ended and return how; raises `TimeoutError`, which tells the state last seen."""
        limit = None if timeout is None else to_span(timeout, "timeout").total_seconds()
        backend = await self._app.opened()
        loop = asyncio.get_running_loop()
        hint = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed with this wait in it: nobody is left to be woken
                loop.call_soon_threadsafe(hint.set)

        unlisten = backend.notifier.listen(wake)
        state: JobState | None = None
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                while (state := await self.state()) not in FINAL_STATES:
                    hint.clear()
                    timer = loop.call_later(_LOOK_EVERY, hint.set)
                    await hint.wait()
                    timer.cancel()
                return state
        except TimeoutError:
            if limit is None or not scope.expired():
                raise
            seen = "has not ended" if state is None else f"is still {state}"
            raise TimeoutError(f"job {self.id} {seen} after {limit:g} s") from None
        finally:
            unlisten()


class JobHandles(Sequence[JobHandle]):
    """The handles of many jobs, made when they are looked at: nobody looks at each of a hundred thousand."""

    __slots__ = ("_app", "_created", "_ids")

    def __init__(self, app: App, ids: Sequence[str], created: Sequence[bool]) -> None:
        self._app = app
        self._ids = ids
        self._created = created

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> JobHandle: ...
    @overload
    def __getitem__(self, index: slice) -> JobHandles: ...
    def __getitem__(self, index: int | slice) -> JobHandle | JobHandles:
        """Return one, or a part of them."""
        if isinstance(index, slice):
            return JobHandles(self._app, self._ids[index], self._created[index])
        return JobHandle(self._app, self._ids[index], created=self._created[index])

    def __repr__(self) -> str:
        """Say how many."""
        return f"<{len(self._ids)} jobs>"
