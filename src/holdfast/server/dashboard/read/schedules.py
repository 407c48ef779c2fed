"""Schedules and their next times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import msgspec

from holdfast.app.audit import AuditEntry
from holdfast.model.instants import to_datetime, to_micros
from holdfast.reports.states import schedule_state
from holdfast.server.dashboard.read.records import pauses
from holdfast.store.schedules import ScheduleView

if TYPE_CHECKING:
    from holdfast.app.app import App

_TIMES: Final = 5


class ScheduleLine(msgspec.Struct, frozen=True):
    """A schedule, its state as one word, and its next times."""

    view: ScheduleView
    state: str
    times: tuple[datetime, ...]
    """In the time zone of the schedule."""

    @property
    def zone(self) -> str:
        """The name of that zone."""
        return self.view.definition.times.timezone


class SchedulesScreen(msgspec.Struct, frozen=True):
    """All schedules, by name."""

    schedules: tuple[ScheduleLine, ...]
    pauses: dict[str, AuditEntry]


async def read_schedules(app: App) -> SchedulesScreen:
    """Read the schedules: one statement, and one more if any is paused."""
    views = await app.schedules.list()
    lines = tuple(ScheduleLine(view, schedule_state(view), _next_times(view)) for view in views)
    return SchedulesScreen(lines, await pauses(app, "schedule", (view.paused for view in views)))


def _next_times(view: ScheduleView) -> tuple[datetime, ...]:
    if view.next_at is None or view.problem is not None:
        return ()
    times = [view.next_at]
    while len(times) < _TIMES:
        following = view.definition.times.after(to_micros(times[-1]))
        if following is None:
            break
        times.append(to_datetime(following))
    zone = ZoneInfo(view.definition.times.timezone)
    return tuple(time.astimezone(zone) for time in times)
