"""The statements of this backend, read once from the `.sql` files beside it, and bound to a schema and a clock.

The clock of the store is one expression, in one place: here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from psycopg.types.numeric import Int8

from holdfast.backends.postgres.location import quoted
from holdfast.backends.sql.files import statements
from holdfast.backends.sql.steps import Ask, Each, Numbers
from holdfast.model.instants import span_micros
from holdfast.model.turn import PRIORITY_STEP

MINUTE = 60_000_000
LOWEST = -(2**63)
SERVER_CLOCK = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_GIVEN_CLOCK = "%(now)s::bigint"

TEMPLATES = statements("holdfast.backends.postgres")


def fill_in(text: str, schema: str, now: str = SERVER_CLOCK) -> str:
    """Return a statement or migration with the schema's quoted name and the constants in their places."""
    places = {
        "{schema}": quoted(schema),
        "{now}": now,
        "{minute}": str(MINUTE),
        "{lowest}": f"({LOWEST + 1})::bigint",
        "{priority_step}": f"{span_micros(PRIORITY_STEP)}::bigint",
    }
    for place, value in places.items():
        text = text.replace(place, value)
    return text


class Statements:
    """All statements for one schema. With `clock`, only in tests, every instant is that clock's."""

    def __init__(self, schema: str, clock: Callable[[], int] | None) -> None:
        self.schema = schema
        self._clock = clock
        now = SERVER_CLOCK if clock is None else _GIVEN_CLOCK
        self._texts = {name: fill_in(text, schema, now).encode() for name, text in TEMPLATES.items()}

    def text(self, name: str) -> bytes:
        """Return a statement as the driver takes it."""
        return self._texts[name]

    def parameters(self, given: Mapping[str, object]) -> Mapping[str, object]:
        """Return a statement's parameters as the driver takes them, with the instant where a clock was given.

        An integer goes as eight bytes: the driver would choose by its value, and each size is a statement to prepare.
        `Numbers` go as the text of an array: the driver looks at each element of a list, which costs more than the
        statement.
        """
        bound = {name: _bound(value) for name, value in given.items()}
        if self._clock is not None:
            bound["now"] = self._clock()
        return bound


def _bound(value: object) -> object:
    if type(value) is int:
        return Int8(value)
    if isinstance(value, Numbers):
        return f"{{{','.join(map(str, value))}}}"
    return value


def transposed(asked: Each) -> Ask:
    """Return a statement for many rows as one statement: its parameters are columns, each an array."""
    names = asked.rows[0].keys()
    return Ask(asked.statement, {name: [row[name] for row in asked.rows] for name in names})
