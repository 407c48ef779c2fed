"""Records over the reference model."""

# ruff: noqa: D102 - the port states the contract of every method here

from __future__ import annotations

from datetime import timedelta

from holdfast.model.instants import span_micros, to_datetime
from holdfast.store.records import StoredRecord
from holdfast.testing.reference.model import Reference


class ReferenceRecords:
    """`RecordStore` over the model's clock."""

    def __init__(self, model: Reference) -> None:
        self._model = model
        self._known: dict[tuple[str, str], tuple[int, str, int]] = {}

    async def put(self, kind: str, name: str, version: int, content: str) -> bool:
        if self._version(kind, name) != version:
            return False
        self._known[kind, name] = version + 1, content, self._model.now
        return True

    async def get(self, kind: str, name: str) -> StoredRecord | None:
        return self._view(kind, name) if (kind, name) in self._known else None

    async def page(
        self, kind: str, limit: int, *, after: str | None = None, descending: bool = False
    ) -> list[StoredRecord]:
        names = self._names(kind)
        if descending:
            behind = [name for name in reversed(names) if after is None or name < after]
        else:
            behind = [name for name in names if after is None or name > after]
        return [self._view(kind, name) for name in behind[:limit]]

    async def delete(self, kind: str, name: str, version: int) -> bool:
        if version == 0 or self._version(kind, name) != version:
            return False
        del self._known[kind, name]
        return True

    async def prune(self, kind: str, *, keep: timedelta, most: int, limit: int) -> int:
        deleted = 0
        for name in self._names(kind)[:limit]:
            is_old = self._model.now - self._known[kind, name][2] >= span_micros(keep)
            if not is_old and len(self._names(kind)) <= most:
                break
            del self._known[kind, name]
            deleted += 1
        return deleted

    def _version(self, kind: str, name: str) -> int:
        return self._known[kind, name][0] if (kind, name) in self._known else 0

    def _names(self, kind: str) -> list[str]:
        return sorted(name for own, name in self._known if own == kind)

    def _view(self, kind: str, name: str) -> StoredRecord:
        version, content, touched = self._known[kind, name]
        age = timedelta(microseconds=max(0, self._model.now - touched))
        return StoredRecord(name, version, content, to_datetime(touched), age)
