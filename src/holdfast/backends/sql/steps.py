"""Requests of SQL verbs: statements by name, which the executor of a dialect runs.

The statements have the same names, parameters and columns in every dialect. A list travels as one parameter: an array
on PostgreSQL, a JSON text elsewhere; `Numbers` marks a long list of integers, which a dialect may bind in a cheaper
way. `now` is the store's clock and is bound by the executor.

A statement that returns no columns is answered with one empty row per row that it changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.store.steps import BecameReady, Steps

Record = TypeVar("Record", bound=tuple[Any, ...])


class Numbers(list[int]):
    """A list of integers, bound without a check of each element."""


class Ask(NamedTuple):
    """A statement by name, with its parameters.

    With `record`, a NamedTuple class, each row is returned as one; the statement names its columns as the fields.
    """

    statement: str
    parameters: Mapping[str, object]
    record: Any = None


class Each(NamedTuple):
    """A statement to run for each of these rows of parameters; a dialect may run it once for all. No answer.

    The rows contain numbers, texts and None, but neither lists nor the clock.
    """

    statement: str
    rows: Sequence[Mapping[str, object]]


class Together(NamedTuple):
    """Statements that do not depend on one another's answers: one round trip where the connection allows it.

    They run in order, each with its own snapshot; the answer is a list of rows for each.
    """

    asks: tuple[Ask | Each, ...]


class Load(NamedTuple):
    """The input of a COPY statement."""

    statement: str
    chunks: Iterable[bytes]


class Script(NamedTuple):
    """Statements of a migration, verbatim."""

    text: str


Rows = list[Any]
Asked = Ask | Together | Each | Load | Script | BecameReady


def rows(statement: str, **parameters: object) -> Steps[Rows]:
    """Return all rows."""
    found: Rows = yield Ask(statement, parameters)
    return found


def records(record: type[Record], statement: str, **parameters: object) -> Steps[list[Record]]:
    """Return all rows as records of a NamedTuple class."""
    found: list[Record] = yield Ask(statement, parameters, record)
    return found


def run(statement: str, **parameters: object) -> Steps[bool]:
    """Run a statement; return whether it returned or changed a row."""
    return bool((yield Ask(statement, parameters)))


def row(statement: str, **parameters: object) -> Steps[Any]:
    """Return the first row, or None."""
    found = yield Ask(statement, parameters)
    return found[0] if found else None


def value(statement: str, **parameters: object) -> Steps[Any]:
    """Return the first column of the first row, or None."""
    found = yield Ask(statement, parameters)
    return found[0][0] if found else None


def together(*asks: Ask | Each) -> Steps[Rows]:
    """Run several statements in one round trip where possible; return the rows of each."""
    found: Rows = yield Together(asks)
    return found


def each(statement: str, rows: Sequence[Mapping[str, object]]) -> Steps[None]:
    """Run a statement for every row of parameters."""
    if rows:
        yield Each(statement, rows)


def load(statement: str, chunks: Iterable[bytes]) -> Steps[None]:
    """Load rows with COPY."""
    yield Load(statement, chunks)


def script(text: str) -> Steps[None]:
    """Run the statements of a migration."""
    yield Script(text)
