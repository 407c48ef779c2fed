"""The rules of schedules: fire, declare, put, remove, pause and resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from holdfast.errors import ConfigError, ScheduleNotFound, StoreUnavailable
from holdfast.model.instants import span_micros, to_datetime
from holdfast.model.job import NewJob
from holdfast.model.schedule import FUTURE, Firing, Recurrence, firing, first_after, is_set_back
from holdfast.model.schedule_definition import (
    ScheduleDefinition,
    decode_definition,
    encode_definition,
    shown_definition,
)
from holdfast.store.schedule_rows import ScheduleChange, ScheduleRow, ScheduleRows
from holdfast.store.schedules import Declared, Fired, ScheduleView
from holdfast.store.steps import Steps
from holdfast.store.verbs.enqueue import Insert

CONFIRM_AFTER = timedelta(seconds=30)
"""A declaration that was confirmed more recently is not written again: many workers confirm the same ones."""
AGAIN = timedelta(seconds=1)  # until a schedule that another transaction had locked is looked at again
_REPEATS = 20  # of a verb whose rows others changed between `lock` and `write`


def fire(schedules: ScheduleRows, seen: Mapping[str, str], limit: int, insert: Insert) -> Steps[Fired]:
    """Fire those of the seen schedules, as (name, definition), that are still due and are not locked."""
    now, locked = yield from schedules.lock(sorted(seen), skips=True)
    changes: list[ScheduleChange] = []
    jobs: list[NewJob] = []
    waits = [AGAIN] if len(locked) < len(seen) else []
    for row in locked:
        if row.paused:
            continue
        if row.definition != seen[row.name]:  # the insert is prepared for the seen definition
            waits.append(AGAIN)
            continue
        definition = decode_definition(row.definition)
        times, next_at = _decide(row, definition, now, limit)
        jobs += (definition.job(row.name, time) for time in times)
        if next_at < FUTURE:
            waits.append(timedelta(microseconds=max(0, next_at - now)))
        if next_at != row.next_at:
            last_at = times[-1] if times else row.last_at
            changes.append(ScheduleChange(row, row._replace(next_at=next_at, last_at=last_at, decided_at=now)))
    inserted = (yield from insert(jobs)) if jobs else []
    yield from schedules.write(changes)
    return Fired(sum(answer is True for answer in inserted), min(waits, default=None))


def _decide(row: ScheduleRow, definition: ScheduleDefinition, now: int, limit: int) -> Firing:
    if is_set_back(row.decided_at, now) and row.next_at > now:
        return Firing([], first_after(definition.times, now))
    return firing(definition.times, row.next_at, now, limit)


def declare(
    schedules: ScheduleRows,
    owner: str,
    definitions: Mapping[str, ScheduleDefinition],
    overrules: Mapping[str, int] | None,
) -> Steps[Declared]:
    """Confirm the declarations of an app, and settle disputes that the caller may decide."""
    for _ in range(_REPEATS):
        now, locked = yield from schedules.lock(sorted(definitions), owner)
        changes, declared = _declared(locked, now, owner, definitions, overrules)
        if not (yield from schedules.write(changes)):
            return declared
    raise StoreUnavailable("schedules change faster than they can be declared: try again")


def confirmed(
    schedules: ScheduleRows,
    owner: str,
    definitions: Mapping[str, ScheduleDefinition],
    overrules: Mapping[str, int] | None,
) -> Steps[Declared | None]:
    """Return the answer to `declare` if there is nothing to write; it only reads."""
    now, found = yield from schedules.read(sorted(definitions), owner)
    changes, declared = _declared(found, now, owner, definitions, overrules)
    return None if changes else declared


def _declared(
    found: Sequence[ScheduleRow],
    now: int,
    owner: str,
    definitions: Mapping[str, ScheduleDefinition],
    overrules: Mapping[str, int] | None,
) -> tuple[list[ScheduleChange], Declared]:
    known = {row.name: row for row in found}
    changes: list[ScheduleChange] = []
    disputed: dict[str, int] = {}
    taken: dict[str, str] = {}
    for name, definition in definitions.items():
        row = known.get(name)
        if row is not None and row.owner not in {None, owner}:
            taken[name] = str(row.owner)
        elif row is None or row.owner is None or overrules is None or overrules.get(name) == row.declared_at:
            new = _defined(row, name, definition, owner, now)
            if row is None or _differs(row, new) or _is_old(row, now):
                changes.append(ScheduleChange(row, new))
        elif _differs(row, _defined(row, name, definition, owner, now)):
            disputed[name] = row.declared_at
        elif _is_old(row, now):
            changes.append(ScheduleChange(row, row._replace(declared_at=now)))
    for row in found:
        if row.owner == owner and row.name not in definitions:
            if overrules is not None and overrules.get(row.name) == row.declared_at:
                changes.append(ScheduleChange(row, None))
            else:
                disputed[row.name] = row.declared_at
    changes.sort(key=_name)  # two workers that add the same schedules do not deadlock
    return changes, Declared(disputed, taken)


def _name(change: ScheduleChange) -> str:
    row = change.old or change.new
    return "" if row is None else row.name


def _differs(row: ScheduleRow, new: ScheduleRow) -> bool:
    return (row.definition, row.owner) != (new.definition, new.owner)


def _is_old(row: ScheduleRow, now: int) -> bool:
    return not 0 <= now - row.declared_at < span_micros(CONFIRM_AFTER)


def _defined(
    row: ScheduleRow | None, name: str, definition: ScheduleDefinition, owner: str | None, now: int
) -> ScheduleRow:
    """Return the row of a definition; what was due under the same times stays due."""
    keeps = row is not None and _times(row) == definition.times
    return ScheduleRow(
        name=name,
        definition=encode_definition(definition),
        task=definition.task,
        owner=owner,
        declared_at=now,
        paused=row is not None and row.paused,
        next_at=row.next_at if row is not None and keeps else first_after(definition.times, now),
        last_at=None if row is None else row.last_at,
        decided_at=row.decided_at if row is not None and keeps else now,
    )


def _times(row: ScheduleRow) -> Recurrence | None:
    """Return the times of a stored schedule; None if this process does not understand them."""
    try:
        return decode_definition(row.definition).times
    except ConfigError:
        return None


def put(schedules: ScheduleRows, name: str, definition: ScheduleDefinition) -> Steps[bool]:
    """Define a schedule at run time."""
    for _ in range(_REPEATS):
        now, locked = yield from schedules.lock([name])
        row = locked[0] if locked else None
        if row is not None and row.owner is not None:
            raise ConfigError(
                f"schedule {name} is declared in the code of app {row.owner!r}: change it there, or choose another name"
            )
        if not (yield from schedules.write([ScheduleChange(row, _defined(row, name, definition, None, now))])):
            return row is None
    raise _contended(name)


def remove(schedules: ScheduleRows, name: str, silent: timedelta) -> Steps[bool]:
    """Delete a schedule that no live worker declares."""
    for _ in range(_REPEATS):
        now, locked = yield from schedules.lock([name])
        if not locked:
            return False
        row = locked[0]
        if row.owner is not None and now - row.declared_at < span_micros(silent):
            raise ConfigError(
                f"schedule {name} is declared in the code of app {row.owner!r}, whose workers would add it again: "
                f"remove it from the code, or pause it with `holdfast schedule pause {name}`"
            )
        if not (yield from schedules.write([ScheduleChange(row, None)])):
            return True
    raise _contended(name)


def set_paused(schedules: ScheduleRows, name: str, *, paused: bool) -> Steps[bool]:
    """Pause or resume a schedule; times that passed during the pause never fire."""
    for _ in range(_REPEATS):
        now, locked = yield from schedules.lock([name])
        if not locked:
            raise not_found(name)
        row = locked[0]
        if row.paused is paused:
            return False
        new = row._replace(paused=paused)
        if not paused:
            try:
                times = decode_definition(row.definition).times
            except ConfigError as error:
                raise ConfigError(f"schedule {name} cannot be resumed here: {error}") from error
            new = new._replace(next_at=first_after(times, now), decided_at=now)
        if not (yield from schedules.write([ScheduleChange(row, new)])):
            return True
    raise _contended(name)


def views(schedules: ScheduleRows, names: Sequence[str] | None) -> Steps[list[ScheduleView]]:
    """List schedules."""
    now, found = yield from schedules.read(names)
    return [_view(row, now) for row in found]


def _view(row: ScheduleRow, now: int) -> ScheduleView:
    fires = not row.paused and row.next_at < FUTURE
    definition, problem = shown_definition(row.definition, row.task)
    overdue = max(0, now - row.next_at) if fires else 0
    return ScheduleView(
        name=row.name,
        definition=definition,
        owner=row.owner,
        undeclared_for=None if row.owner is None else timedelta(microseconds=max(0, now - row.declared_at)),
        paused=row.paused,
        last_at=None if row.last_at is None else to_datetime(row.last_at),
        next_at=to_datetime(row.next_at) if fires else None,
        overdue=timedelta(microseconds=overdue),
        problem=problem,
    )


def not_found(name: str) -> ScheduleNotFound:
    """Return the error for a name that no schedule has."""
    return ScheduleNotFound(f"there is no schedule {name!r}: `holdfast schedule list` shows all of them")


def _contended(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"schedule {name} changes faster than it can be locked: try again")
