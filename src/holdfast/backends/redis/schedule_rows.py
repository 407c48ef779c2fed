"""`ScheduleRows` on Redis: a hash of all schedules. Each search for due ones reads all: there are few of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.backends.redis.steps import Command, Guard, collect, read, read_many
from holdfast.store.schedule_rows import DueSchedule, LockedSchedules, ScheduleChange, ScheduleRow
from holdfast.store.steps import Steps

_decode = msgspec.json.Decoder(ScheduleRow).decode
_encode = msgspec.json.encode


class RedisScheduleRows:
    """`ScheduleRows`. A change is written, with the jobs of its verb, if the schedule is as it was read."""

    def read(self, names: Sequence[str] | None = None, owner: str | None = None) -> Steps[LockedSchedules]:  # noqa: D102
        if names is not None and owner is None:
            now, found = yield from read_many([("HGET", "schedules", name) for name in set(names)])
            return LockedSchedules(now, sorted(_decode(text) for text in found if text is not None))
        now, (found,) = yield from read(("HGETALL", "schedules"))
        rows = sorted(_decode(text) for text in found[1::2])
        wanted = set(names or ())
        return LockedSchedules(now, [row for row in rows if owner in {None, row.owner} or row.name in wanted])

    def lock(self, names: Sequence[str], owner: str | None = None, *, skips: bool = False) -> Steps[LockedSchedules]:  # noqa: ARG002, D102
        return (yield from self.read(names, owner))

    def due(self, tasks: Sequence[str], names: Sequence[str], grace: int, limit: int) -> Steps[list[DueSchedule]]:  # noqa: D102
        now, rows = yield from self.read()
        due = [
            (0 if row.decided_at > now + grace else row.next_at - now, row)
            for row in rows
            if not row.paused and (row.task in tasks if row.owner is None else row.name in names)
        ]
        due.sort(key=lambda each: (each[0], each[1].name))
        return [DueSchedule(row.name, row.definition, wait) for wait, row in due[:limit]]

    def write(self, changes: Sequence[ScheduleChange]) -> Steps[list[ScheduleChange]]:  # noqa: D102
        guards: list[Guard] = []
        commands: list[Command] = []
        for old, new in changes:
            name = "" if (row := new or old) is None else row.name
            guards.append(Guard("h", "schedules", name, b"" if old is None else _encode(old)))
            commands.append(("HDEL", "schedules", name) if new is None else ("HSET", "schedules", name, _encode(new)))
        yield from collect(guards, commands)
        return []
