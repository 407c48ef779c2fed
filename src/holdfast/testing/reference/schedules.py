"""Schedules over the reference model."""

# ruff: noqa: D102 - the port states the contract of every method here

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import ConfigError, ScheduleNotFound
from holdfast.model.instants import span_micros, to_datetime
from holdfast.model.schedule import FUTURE, firing, first_after, is_set_back
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.store.schedules import Declared, Fired, ScheduleView
from holdfast.testing.reference.model import Reference

_CONFIRM_US = 30_000_000


@dataclass(slots=True)
class ReferenceSchedule:
    """The complete state of a schedule."""

    definition: ScheduleDefinition
    owner: str | None
    declared_us: int
    next_us: int
    decided_us: int
    paused: bool = False
    last_us: int | None = None


class ReferenceSchedules:
    """`ScheduleStore` over the model."""

    def __init__(self, model: Reference) -> None:
        self._model = model
        self.known: dict[str, ReferenceSchedule] = {}

    async def fire(self, tasks: Sequence[str], names: Sequence[str], limit: int) -> Fired:
        made = 0
        waits: list[int] = []
        for name, known in sorted(self.known.items()):
            mine = known.definition.task in tasks if known.owner is None else name in names
            if not mine or known.paused:
                continue
            made += self._fire(name, known, limit)
            if known.next_us < FUTURE:
                waits.append(max(0, known.next_us - self._model.now))
        return Fired(made, min((timedelta(microseconds=wait) for wait in waits), default=None))

    def _fire(self, name: str, known: ReferenceSchedule, limit: int) -> int:
        now = self._model.now
        if is_set_back(known.decided_us, now) and known.next_us > now:
            known.next_us, known.decided_us = first_after(known.definition.times, now), now
        times, next_us = firing(known.definition.times, known.next_us, now, limit)
        if next_us != known.next_us:
            known.next_us, known.decided_us = next_us, now
        if times:
            known.last_us = times[-1]
        answers = self._model.enqueue([known.definition.job(name, time) for time in times])
        return sum(answer is True for answer in answers)

    async def declare(
        self,
        owner: str,
        definitions: Mapping[str, ScheduleDefinition],
        *,
        overrules: Mapping[str, int] | None,
    ) -> Declared:
        disputed: dict[str, int] = {}
        taken: dict[str, str] = {}
        now = self._model.now
        for name, definition in definitions.items():
            known = self.known.get(name)
            if known is not None and known.owner not in {None, owner}:
                taken[name] = str(known.owner)
                continue
            is_same = known is not None and (known.owner, known.definition) == (owner, definition)
            is_other = known is not None and known.owner == owner and not is_same
            if known is not None and is_other and overrules is not None and overrules.get(name) != known.declared_us:
                disputed[name] = known.declared_us
                continue
            confirms = known is None or not is_same or not 0 <= now - known.declared_us < _CONFIRM_US
            if confirms:
                self._define(name, definition, owner)
        for name in [name for name, known in self.known.items() if known.owner == owner and name not in definitions]:
            declared_us = self.known[name].declared_us
            if overrules is not None and overrules.get(name) == declared_us:
                del self.known[name]
            else:
                disputed[name] = declared_us
        return Declared(disputed, taken)

    def _define(self, name: str, definition: ScheduleDefinition, owner: str | None) -> None:
        now = self._model.now
        known = self.known.get(name)
        if known is None:
            self.known[name] = ReferenceSchedule(definition, owner, now, first_after(definition.times, now), now)
            return
        if known.definition.times != definition.times:
            known.next_us, known.decided_us = first_after(definition.times, now), now
        known.definition, known.owner, known.declared_us = definition, owner, now

    async def put(self, name: str, definition: ScheduleDefinition) -> bool:
        known = self.known.get(name)
        if known is not None and known.owner is not None:
            message = f"schedule {name} is declared in code"
            raise ConfigError(message)
        self._define(name, definition, None)
        return known is None

    async def remove(self, name: str, silent: timedelta) -> bool:
        known = self.known.get(name)
        if known is None:
            return False
        if known.owner is not None and self._model.now - known.declared_us < span_micros(silent):
            message = f"schedule {name} is declared in code"
            raise ConfigError(message)
        del self.known[name]
        return True

    async def pause(self, name: str) -> bool:
        known = self._require(name)
        was, known.paused = known.paused, True
        return not was

    async def resume(self, name: str) -> bool:
        known = self._require(name)
        if not known.paused:
            return False
        known.paused = False
        known.decided_us = self._model.now
        known.next_us = first_after(known.definition.times, self._model.now)
        return True

    def _require(self, name: str) -> ReferenceSchedule:
        if name not in self.known:
            raise ScheduleNotFound(name)
        return self.known[name]

    async def list(self, names: Sequence[str] | None = None) -> list[ScheduleView]:
        wanted = sorted(self.known if names is None else self.known.keys() & set(names))
        return [self._view(name, self.known[name]) for name in wanted]

    def _view(self, name: str, known: ReferenceSchedule) -> ScheduleView:
        now = self._model.now
        fires = not known.paused and known.next_us < FUTURE
        return ScheduleView(
            name=name,
            definition=known.definition,
            owner=known.owner,
            undeclared_for=None if known.owner is None else timedelta(microseconds=max(0, now - known.declared_us)),
            paused=known.paused,
            last_at=None if known.last_us is None else to_datetime(known.last_us),
            next_at=to_datetime(known.next_us) if fires else None,
            overdue=timedelta(microseconds=max(0, now - known.next_us) if fires else 0),
        )
