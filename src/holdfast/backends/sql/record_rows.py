"""`RecordRows` on SQL: the version is compared by the statement that writes."""

from __future__ import annotations

from holdfast.backends.sql.steps import records, run
from holdfast.store.record_rows import FirstRecord, RecordRow
from holdfast.store.steps import Steps

_LAST = "\U0010ffff"  # behind every name


class SqlRecordRows:
    """Code shared by all dialects."""

    def find(self, kind: str, name: str) -> Steps[RecordRow | None]:  # noqa: D102
        found = yield from records(RecordRow, "find_record", kind=kind, name=name)
        return found[0] if found else None

    def page(self, kind: str, after: str | None, limit: int, *, descending: bool) -> Steps[list[RecordRow]]:  # noqa: D102
        if descending:
            return (yield from records(RecordRow, "records_before", kind=kind, before=after or _LAST, limit=limit))
        return (yield from records(RecordRow, "records_after", kind=kind, after=after or "", limit=limit))

    def first(self, kind: str, limit: int) -> Steps[list[FirstRecord]]:  # noqa: D102
        return (yield from records(FirstRecord, "first_records", kind=kind, limit=limit))

    def put(self, kind: str, name: str, version: int, content: str) -> Steps[bool]:  # noqa: D102
        if not version:
            return (yield from run("add_record", kind=kind, name=name, content=content))
        return (yield from run("write_record", kind=kind, name=name, version=version, content=content))

    def delete(self, kind: str, name: str, version: int) -> Steps[bool]:  # noqa: D102
        return (yield from run("delete_record", kind=kind, name=name, version=version))
