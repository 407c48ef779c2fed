"""Schedules and their next times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model.instants import to_datetime, to_micros
from holdfast.reports.states import schedule_state
from holdfast.store.schedules import ScheduleView

if TYPE_CHECKING:
    from holdfast.app.app import App

_TIMES: Final = 5


class ScheduleLine(msgspec.Struct, frozen=True):
    """A schedule, its state as one word, and its next times."""

    view: ScheduleView
    state: str
    times: tuple[datetime, ...]


class SchedulesScreen(msgspec.Struct, frozen=True):
    """All schedules, by name."""

    schedules: tuple[ScheduleLine, ...]


async def read_schedules(app: App) -> SchedulesScreen:
    """Read the schedules: one statement."""
    return SchedulesScreen(
        tuple(ScheduleLine(view, schedule_state(view), _next_times(view)) for view in await app.schedules.list())
    )


def _next_times(view: ScheduleView) -> tuple[datetime, ...]:
    if view.next_at is None:
        return ()
    times = [view.next_at]
    while len(times) < _TIMES:
        following = view.definition.times.after(to_micros(times[-1]))
        if following is None:
            break
        times.append(to_datetime(following))
    return tuple(times)
