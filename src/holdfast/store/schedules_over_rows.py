"""The verbs for schedules over the rows of a store: written once for all stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from holdfast.errors import ConfigError
from holdfast.model.instants import span_micros
from holdfast.model.job import NewJob
from holdfast.model.schedule import GRACE
from holdfast.model.schedule_definition import ScheduleDefinition, decode_definition
from holdfast.store.schedule_rows import ScheduleRows
from holdfast.store.schedules import Declared, Fired, ScheduleView
from holdfast.store.steps import Runner
from holdfast.store.verbs import schedules as rules
from holdfast.store.verbs.enqueue import Insert

_AT_ONCE = 50  # schedules that one call fires


class SchedulesOverRows:
    """`ScheduleStore`. `inserter` prepares the insertion of jobs inside a transaction; `changed` notifies workers."""

    def __init__(
        self,
        runner: Runner,
        rows: ScheduleRows,
        inserter: Callable[[Sequence[NewJob]], Awaitable[Insert]],
        changed: Callable[[], None],
    ) -> None:
        self._runner = runner
        self._rows = rows
        self._inserter = inserter
        self._changed = changed
        self._not_understood: dict[str, str] = {}  # the definitions of due schedules, by name

    async def fire(self, tasks: Sequence[str], names: Sequence[str], limit: int) -> Fired:  # noqa: D102 - see the port
        grace = span_micros(GRACE)
        most = _AT_ONCE + 1 + len(self._not_understood)
        found = await self._runner.look(lambda: self._rows.due(list(tasks), list(names), grace, most))
        found = [row for row in found if self._not_understood.get(row.name) != row.definition]
        due = {row.name: row.definition for row in found[:_AT_ONCE] if row.wait <= 0}
        waits = [timedelta(microseconds=max(0, row.wait)) for row in found if row.name not in due]
        samples: list[NewJob] = []
        problems: dict[str, str] = {}
        for name, definition in due.items():
            try:
                samples.append(decode_definition(definition).extra_job(name, ""))
            except ConfigError as error:  # it stays due, for a process that understands it
                problems[name] = str(error)
                self._not_understood[name] = definition
        for name in problems:
            del due[name]
        if not due:
            return Fired(0, min(waits, default=None), problems)
        insert = await self._inserter(samples)
        fired = await self._runner.write(lambda: rules.fire(self._rows, due, limit, insert))
        waits += [] if fired.next_due is None else [fired.next_due]
        return Fired(fired.jobs, min(waits, default=None), problems)

    async def declare(  # noqa: D102
        self,
        owner: str,
        definitions: Mapping[str, ScheduleDefinition],
        *,
        overrules: Mapping[str, int] | None,
    ) -> Declared:
        # Most calls find everything confirmed by another worker: they lock nothing.
        declared = await self._runner.read(lambda: rules.confirmed(self._rows, owner, definitions, overrules))
        if declared is not None:
            return declared
        return await self._runner.write(lambda: rules.declare(self._rows, owner, definitions, overrules))

    async def put(self, name: str, definition: ScheduleDefinition) -> bool:  # noqa: D102
        is_new = await self._runner.write(lambda: rules.put(self._rows, name, definition))
        self._changed()
        return is_new

    async def remove(self, name: str, silent: timedelta) -> bool:  # noqa: D102
        return await self._runner.write(lambda: rules.remove(self._rows, name, silent))

    async def pause(self, name: str) -> bool:  # noqa: D102
        return await self._runner.write(lambda: rules.set_paused(self._rows, name, paused=True))

    async def resume(self, name: str) -> bool:  # noqa: D102
        resumed = await self._runner.write(lambda: rules.set_paused(self._rows, name, paused=False))
        self._changed()
        return resumed

    async def list(self, names: Sequence[str] | None = None) -> list[ScheduleView]:  # noqa: D102
        return await self._runner.read(lambda: rules.views(self._rows, names))
