"""Run the steps of a verb in an open transaction of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from holdfast.backends.sql.steps import Ask, Asked, Each, Rows, Together
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.store.steps import Steps

T = TypeVar("T")
_encode = msgspec.json.encode


def drive(raw: sqlite3.Connection, now: int, steps: Steps[T]) -> T:
    """Run a verb to its end; `now` is the store's clock for all of its statements."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_answer(raw, now, asked))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def _answer(raw: sqlite3.Connection, now: int, asked: Asked) -> Rows:
    match asked:
        case Ask():
            return _rows(raw, now, asked)
        case Together(asks):
            return [_answer(raw, now, ask) for ask in asks]
        case Each(statement, rows):
            raw.executemany(STATEMENTS[statement], ({**bound(row), "now": now} for row in rows))
            return []
        case _:
            raise TypeError(asked)  # COPY is PostgreSQL's; migrations run by themselves


def _rows(raw: sqlite3.Connection, now: int, ask: Ask) -> Rows:
    cursor = raw.execute(STATEMENTS[ask.statement], {**bound(ask.parameters), "now": now})
    if cursor.description is None:
        return [()] * cursor.rowcount
    found = cursor.fetchall()
    if ask.record is None:
        return found
    check_columns(ask, tuple(column[0] for column in cursor.description))
    return [ask.record(*row) for row in found]


def check_columns(ask: Ask, columns: tuple[str, ...]) -> None:
    """Raise `RuntimeError` unless a statement names its columns as the fields of its record: rows go by name."""
    fields: Any = ask.record._fields
    if columns != fields:
        message = f"the statement {ask.statement} returns {columns}, {ask.record.__name__} has {fields}"
        raise RuntimeError(message)


def bound(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters as SQLite takes them: a list as its JSON text."""
    return {name: _encode(value).decode() if isinstance(value, list) else value for name, value in parameters.items()}
