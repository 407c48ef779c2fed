"""What the store knows about queues, consumers and schedules: read with a fixed number of calls, kept a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary, ref

import msgspec

from holdfast.app.app import App
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.lease_rules import is_silent
from holdfast.store.schedules import ScheduleView
from holdfast.store.stream_values import ConsumerView
from holdfast.store.values import QueueView, WorkerView

KEPT_FOR: Final = 5.0
MOST_COUNTED: Final = 100_000
"""Counting stops at about this many jobs of a task and state."""
_TIMEOUT: Final = 5.0


class StoreFigures(msgspec.Struct, frozen=True):
    """One look at the store; `error` says why there is none."""

    queues: Sequence[QueueView] = ()
    workers: Sequence[WorkerView] = ()
    schedules: Sequence[ScheduleView] = ()
    consumers: Sequence[ConsumerView] = ()
    schema_version: int | None = None
    missed: dict[str, int] = {}
    """How often each schedule was found overdue, counted once per nominal time."""
    error: str | None = None

    @property
    def live(self) -> list[WorkerView]:
        """The workers that are live, as `holdfast worker list` shows them."""
        return [view for view in self.workers if not is_silent(view.silent, view.heartbeat.lease)]


class FigureReader:
    """Reads the figures of an app's store; those of the last seconds are returned again. For one event loop."""

    def __init__(self, app: App, *, kept_for: float = KEPT_FOR) -> None:
        self._app = ref(app)  # it is kept by its app: a strong reference would keep both forever
        self._kept_for = kept_for
        self._last: tuple[float, StoreFigures] | None = None
        self._lock = asyncio.Lock()
        self._overdue: dict[str, tuple[object, int]] = {}  # by schedule: the last missed time, and how many so far

    async def read(self) -> StoreFigures:
        """Return the figures; never raises because of the store."""
        async with self._lock:
            if self._last is None or time.monotonic() >= self._last[0] + self._kept_for:
                figures = await self._look()
                self._last = (time.monotonic(), figures)
            return self._last[1]

    async def _look(self) -> StoreFigures:
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._read()
        except TimeoutError:
            return StoreFigures(error=f"the store did not answer within {_TIMEOUT:g} s")
        except HoldfastError as error:
            return StoreFigures(error=str(error))

    async def _read(self) -> StoreFigures:
        app = self._app()
        if app is None:
            raise StoreUnavailable("the app was closed")
        backend = await app.opened(install=False)
        schedules = await app.schedules.list()
        return StoreFigures(
            schema_version=await backend.schema.check(),
            queues=await app.queues.list(most=MOST_COUNTED),
            workers=await app.workers(),
            schedules=schedules,
            consumers=await app.consumers.list() if backend.capabilities.has_streams else (),
            missed=self._count_missed(schedules),
        )

    def _count_missed(self, schedules: Sequence[ScheduleView]) -> dict[str, int]:
        counted: dict[str, tuple[object, int]] = {}
        for view in schedules:
            before, number = self._overdue.get(view.name, (None, 0))
            is_new = view.is_overdue and view.next_at != before
            counted[view.name] = (view.next_at if view.is_overdue else before, number + is_new)
        self._overdue = counted
        return {name: number for name, (_, number) in counted.items()}


_readers: WeakKeyDictionary[App, FigureReader] = WeakKeyDictionary()


async def figures_of(app: App) -> StoreFigures:
    """Return the figures of an app's store, at most `KEPT_FOR` seconds old."""
    reader = _readers.get(app)
    if reader is None:
        reader = _readers[app] = FigureReader(app)
    return await reader.read()
