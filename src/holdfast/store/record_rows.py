"""Records, as a store keeps them, and the verbs over them: written once for all stores."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

from holdfast.model.instants import span_micros, to_datetime
from holdfast.store.records import StoredRecord
from holdfast.store.steps import Runner, Steps


class RecordRow(NamedTuple):
    """A record. `touched_at` is an instant and `age` a span by the store's clock, in microseconds."""

    name: str
    version: int
    content: str
    touched_at: int
    age: int


class FirstRecord(NamedTuple):
    """One of the first records of a kind; `number` is how many records the kind has."""

    name: str
    version: int
    age: int
    number: int


class RecordRows(Protocol):
    """What a store implements for records. Each method is a generator of requests to the store."""

    def find(self, kind: str, name: str) -> Steps[RecordRow | None]:
        """Return a record."""
        ...

    def page(self, kind: str, after: str | None, limit: int, *, descending: bool) -> Steps[list[RecordRow]]:
        """Return records by name, from the first one behind `after` in this direction."""
        ...

    def first(self, kind: str, limit: int) -> Steps[list[FirstRecord]]:
        """Return the first records by name."""
        ...

    def put(self, kind: str, name: str, version: int, content: str) -> Steps[bool]:
        """Replace a record of this version, or insert one if that is 0; return whether it was so."""
        ...

    def delete(self, kind: str, name: str, version: int) -> Steps[bool]:
        """Delete a record of this version; return whether it was so."""
        ...


class RecordsOverRows:
    """`RecordStore`."""

    def __init__(self, runner: Runner, rows: RecordRows) -> None:
        self._runner = runner
        self._rows = rows

    async def put(self, kind: str, name: str, version: int, content: str) -> bool:  # noqa: D102 - see the port
        return await self._runner.once(lambda: self._rows.put(kind, name, version, content))

    async def get(self, kind: str, name: str) -> StoredRecord | None:  # noqa: D102
        found = await self._runner.look(lambda: self._rows.find(kind, name))
        return None if found is None else _view(found)

    async def page(  # noqa: D102
        self, kind: str, limit: int, *, after: str | None = None, descending: bool = False
    ) -> list[StoredRecord]:
        found = await self._runner.look(lambda: self._rows.page(kind, after, limit, descending=descending))
        return [_view(row) for row in found]

    async def delete(self, kind: str, name: str, version: int) -> bool:  # noqa: D102
        return await self._runner.once(lambda: self._rows.delete(kind, name, version))

    async def prune(self, kind: str, *, keep: timedelta, most: int, limit: int) -> int:  # noqa: D102
        return await self._runner.write(lambda: _prune(self._rows, kind, span_micros(keep), most, limit))


def _prune(rows: RecordRows, kind: str, keep: int, most: int, limit: int) -> Steps[int]:
    deleted = 0
    for place, row in enumerate((yield from rows.first(kind, limit))):
        if row.age < keep and row.number - place <= most:
            break
        deleted += yield from rows.delete(kind, row.name, row.version)
    return deleted


def _view(row: RecordRow) -> StoredRecord:
    return StoredRecord(
        row.name, row.version, row.content, to_datetime(row.touched_at), timedelta(microseconds=max(0, row.age))
    )
