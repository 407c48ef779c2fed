"""`ScheduleRows` on SQL: a locked row cannot change, so only an insert can be refused."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.steps import Ask, records, run, together
from holdfast.store.schedule_rows import DueSchedule, LockedSchedules, ScheduleChange, ScheduleRow
from holdfast.store.steps import Steps


class SqlScheduleRows:
    """Code shared by all dialects."""

    def read(self, names: Sequence[str] | None = None, owner: str | None = None) -> Steps[LockedSchedules]:  # noqa: D102
        if names is None and owner is None:
            return (yield from _found("all_schedules"))
        return (yield from _found("find_schedules", names=list(names or ()), owner=owner))

    def lock(self, names: Sequence[str], owner: str | None = None, *, skips: bool = False) -> Steps[LockedSchedules]:  # noqa: D102
        statement = "lock_free_schedules" if skips else "lock_schedules"
        return (yield from _found(statement, names=list(names), owner=owner))

    def due(self, tasks: Sequence[str], names: Sequence[str], grace: int, limit: int) -> Steps[list[DueSchedule]]:  # noqa: D102
        given = {"tasks": list(tasks), "names": list(names), "grace": grace, "limit": limit}
        return (yield from records(DueSchedule, "due_schedules", **given))

    def write(self, changes: Sequence[ScheduleChange]) -> Steps[list[ScheduleChange]]:  # noqa: D102
        refused: list[ScheduleChange] = []
        for change in changes:
            if change.new is None:
                yield from run("delete_schedule", name=change.old.name if change.old else "")
            elif change.old is not None:
                yield from run("write_schedule", **change.new._asdict())
            elif not (yield from run("add_schedule", **change.new._asdict())):
                refused.append(change)  # another transaction has added it
        return refused


def _found(statement: str, **parameters: object) -> Steps[LockedSchedules]:
    """Return rows, and the clock after any wait for their locks."""
    found, ((now,),) = yield from together(Ask(statement, parameters, ScheduleRow), Ask("store_clock", {}))
    return LockedSchedules(now, [row._replace(paused=bool(row.paused)) for row in found])
