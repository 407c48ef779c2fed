"""The port's verbs for schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from holdfast.model.declarations import SILENT
from holdfast.model.schedule import GRACE
from holdfast.model.schedule_definition import ScheduleDefinition


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule in a list.

    `owner` is the app whose code declares it, None if it was defined at run time; `undeclared_for` is how long ago a
    worker last confirmed that. `last_at` and `next_at` are nominal times; `next_at` is None while the schedule is
    paused, or if it has no next time. `overdue` is how long it has been due without firing. `problem` is why this
    process cannot fire it, with the remedy; if it cannot even read the definition, only the task of that is right.
    """

    name: str
    definition: ScheduleDefinition
    owner: str | None
    undeclared_for: timedelta | None
    paused: bool
    last_at: datetime | None
    next_at: datetime | None
    overdue: timedelta
    problem: str | None = None

    @property
    def is_undeclared(self) -> bool:
        """Whether the code of an app declared it, but no worker has confirmed that lately: it does not fire."""
        return self.undeclared_for is not None and self.undeclared_for >= SILENT

    @property
    def is_overdue(self) -> bool:
        """Whether it should have fired, and no worker has done so."""
        return self.overdue > GRACE


class Fired(msgspec.Struct, frozen=True):
    """The answer to `fire`: the number of jobs, and how long until the next schedule is due; None: there is none.

    `problems`: due schedules that this process cannot fire, by name, and why; each is reported once.
    """

    jobs: int
    next_due: timedelta | None
    problems: Mapping[str, str] = {}


class Declared(msgspec.Struct, frozen=True):
    """The answer to `declare`.

    `disputed`: schedules of this app that the caller does not declare, or not so, each with the instant at which a
    worker last confirmed it, in microseconds. `taken`: names that another app declares, with its name.
    """

    disputed: Mapping[str, int]
    taken: Mapping[str, str]


class ScheduleStore(Protocol):
    """Schedules and their firing. Every method is one atomic step of the store, and safe to repeat."""

    async def fire(self, tasks: Sequence[str], names: Sequence[str], limit: int) -> Fired:
        """Enqueue the jobs of schedules that are due, by the store's clock; at most `limit` for each of them.

        1. Fires schedules of this app's code by their `names`, and schedules defined at run time by their `tasks`.
        2. `model.schedule.firing` decides which nominal times become jobs.
        3. In the same transaction the next time is written, so the next caller finds it: each nominal time becomes one
           job, also if the reply was lost, and however many callers fire concurrently.
        4. A schedule that another transaction has locked is left out, and `next_due` is short.
        5. A schedule whose stored definition this process does not understand is left out, too: others fire.
        """
        ...

    async def declare(
        self,
        owner: str,
        definitions: Mapping[str, ScheduleDefinition],
        *,
        overrules: Mapping[str, int] | None,
    ) -> Declared:
        """Confirm what the code of an app declares; add what is missing.

        1. A new schedule, or one whose times have changed, is due at its first time after now.
        2. A schedule that is stored with another definition is disputed. It is replaced if `overrules` is None: the
           caller starts now. Later, only if `overrules` names it with the instant at which it was last confirmed.
        3. A schedule of this app that is not among the definitions is disputed. It is deleted only if `overrules` names
           it in this way.
        4. A schedule that was defined at run time becomes one of this app; that of another app is left as it is.
        """
        ...

    async def put(self, name: str, definition: ScheduleDefinition) -> bool:
        """Define a schedule at run time, or replace it; True if it is new. It stays paused if it was.

        Raises `ConfigError` if the code of an app declares it.
        """
        ...

    async def remove(self, name: str, silent: timedelta) -> bool:
        """Delete a schedule; False if there is none.

        Raises `ConfigError` if a worker has confirmed less than `silent` ago that its code declares it.
        """
        ...

    async def pause(self, name: str) -> bool:
        """Stop firing; False if it was paused. Raises `ScheduleNotFound`."""
        ...

    async def resume(self, name: str) -> bool:
        """Fire again, at the first time after now; False if it was not paused. Raises `ScheduleNotFound`."""
        ...

    async def list(self, names: Sequence[str] | None = None) -> list[ScheduleView]:
        """List all schedules, or those of these names, by name."""
        ...
