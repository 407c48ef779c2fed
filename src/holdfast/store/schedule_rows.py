"""The rows of schedules, as a store keeps them and as the rules read them; see `store.job_rows` for the scheme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.store.steps import Steps


class ScheduleRow(NamedTuple):
    """A schedule. Instants are microseconds.

    `definition` is a `ScheduleDefinition` as JSON, `task` its task. `owner` is the app whose code declares it, None if
    it was defined at run time; `declared_at` is when a worker last confirmed that. `decided_at` is when `next_at` was
    decided.
    """

    name: str
    definition: str
    task: str
    owner: str | None
    declared_at: int
    paused: bool
    next_at: int
    last_at: int | None
    decided_at: int


class DueSchedule(NamedTuple):
    """A schedule that may be due (`due_schedules`): `wait` is how long until then, at most 0 if it is."""

    name: str
    definition: str
    wait: int


class LockedSchedules(NamedTuple):
    """The answer to `lock` and `read`. `now` is the store's clock."""

    now: int
    rows: list[ScheduleRow]


class ScheduleChange(NamedTuple):
    """The change of one schedule: `old` None adds it, `new` None deletes it."""

    old: ScheduleRow | None
    new: ScheduleRow | None


class ScheduleRows(Protocol):
    """What a store implements for the rules of schedules. Each method is a generator of requests to the store."""

    def read(self, names: Sequence[str] | None = None, owner: str | None = None) -> Steps[LockedSchedules]:
        """Return the schedules of these names and of this owner, by name; without either, all."""
        ...

    def lock(self, names: Sequence[str], owner: str | None = None, *, skips: bool = False) -> Steps[LockedSchedules]:
        """Return the same rows, to be changed by `write` in the same verb.

        Waits for transactions that have locked one of them, or `skips` it.
        """
        ...

    def due(self, tasks: Sequence[str], names: Sequence[str], grace: int, limit: int) -> Steps[list[DueSchedule]]:
        """Return the schedules that are due first and are not paused: those of an app by name, others by task.

        One whose next time was decided more than `grace` in the future is due: the clock was set back.
        """
        ...

    def write(self, changes: Sequence[ScheduleChange]) -> Steps[list[ScheduleChange]]:
        """Apply each change whose row is unchanged since it was read; return the refused ones."""
        ...
