"""Verbs without I/O: a verb is a generator that asks for statements and is sent their rows.

So each verb is written once and runs on an async connection, on a blocking one, in a handler's transaction and in the
caller's own; `driving.py` does the talking.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement by name, with its parameters."""

    statement: str
    parameters: Mapping[str, object]


class Together(NamedTuple):
    """Statements of which none needs the answer of another: they take one round trip where the connection allows it.

    They run in their order, each with a snapshot of its own; the answer is a list of rows for each.
    """

    asks: tuple[Ask, ...]


class Load(NamedTuple):
    """What a COPY statement is to read."""

    statement: str
    chunks: Iterable[bytes]


class Script(NamedTuple):
    """Statements of a migration, as they are."""

    text: str


Rows = list[Any]
Asked = Ask | Together | Load | Script
Steps = Generator[Asked, Rows, T]


def rows(statement: str, **parameters: object) -> Steps[Rows]:
    """Ask for all rows."""
    return (yield Ask(statement, parameters))


def run(statement: str, **parameters: object) -> Steps[bool]:
    """Run a statement; whether it returned a row."""
    return bool((yield Ask(statement, parameters)))


def row(statement: str, **parameters: object) -> Steps[Any]:
    """Ask for the first row, or None."""
    found = yield Ask(statement, parameters)
    return found[0] if found else None


def value(statement: str, **parameters: object) -> Steps[Any]:
    """Ask for the first column of the first row, or None."""
    found = yield Ask(statement, parameters)
    return found[0][0] if found else None


def together(*asks: Ask) -> Steps[Rows]:
    """Run several statements at once; the rows of each."""
    return (yield Together(asks))


def load(statement: str, chunks: Iterable[bytes]) -> Steps[None]:
    """Copy rows in."""
    yield Load(statement, chunks)


def script(text: str) -> Steps[None]:
    """Run the statements of a migration."""
    yield Script(text)
