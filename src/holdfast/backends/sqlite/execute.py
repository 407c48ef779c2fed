"""Runs the steps of a verb in an open SQLite transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.backends.sql.steps import Ask, Asked, Each, Rows, Together
from holdfast.backends.sqlite.connection import Tx, as_json
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.model.instants import span_micros
from holdfast.model.turn import PRIORITY_STEP
from holdfast.store.steps import BecameReady, Ready, Steps, Verb

T = TypeVar("T")
_checked: set[tuple[str, Any]] = set()
_TIMED = {name for name, text in STATEMENTS.items() if ":now" in text}
CONSTANTS = {"priority_step": span_micros(PRIORITY_STEP)}


class Direct(NamedTuple):
    """A step for hot paths: a function that runs many statements on the open transaction."""

    work: Callable[[Tx], Any]


def direct(work: Callable[[Tx], T]) -> Verb[T]:
    """Return the verb that calls `work` with the open transaction."""

    def verb() -> Steps[T]:
        answer: T = yield Direct(work)
        return answer

    return verb


def drive(tx: Tx, steps: Steps[T], ready: Ready) -> T:
    """Run a verb to its end; all its statements use the clock of `tx`."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_answer(tx, asked, ready))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def _answer(tx: Tx, asked: Asked | Direct, ready: Ready) -> Any:
    match asked:
        case Direct(work):
            return work(tx)
        case Ask():
            return _rows(tx, asked)
        case Together(asks):
            return [_answer(tx, ask, ready) for ask in asks]
        case Each(statement, rows):
            timed = ({**row, "now": tx.now} for row in rows) if statement in _TIMED else rows
            tx.raw.executemany(STATEMENTS[statement], timed)
            return []
        case BecameReady():
            ready.add(asked)
            return []
        case _:
            raise TypeError(asked)  # COPY exists only on PostgreSQL; migrations do not run as steps


def _rows(tx: Tx, ask: Ask) -> Rows:
    given = {name: as_json(value) if isinstance(value, list) else value for name, value in ask.parameters.items()}
    cursor = tx.raw.execute(STATEMENTS[ask.statement], {**given, "now": tx.now, **CONSTANTS})
    if cursor.description is None:
        return [()] * cursor.rowcount
    found = cursor.fetchall()
    if ask.record is None:
        return found
    if (ask.statement, ask.record) not in _checked:
        check_columns(ask, tuple(column[0] for column in cursor.description))
        _checked.add((ask.statement, ask.record))
    return [ask.record(*row) for row in found]


def check_columns(ask: Ask, columns: tuple[str, ...]) -> None:
    """Raise `RuntimeError` unless the columns of a statement are named, and ordered, as the fields of its record."""
    fields: Any = ask.record._fields
    if columns != fields:
        message = f"the statement {ask.statement} returns {columns}, {ask.record.__name__} has {fields}"
        raise RuntimeError(message)
