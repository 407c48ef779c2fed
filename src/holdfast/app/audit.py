"""`app.audit`: who changed what, for operators. It never contains the arguments of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConfigError
from holdfast.model.ids import id_text, is_id, new_id
from holdfast.model.numbers import whole_number
from holdfast.runtime.text import clean
from holdfast.store.records import StoredRecord

if TYPE_CHECKING:
    from holdfast.app.app import App

KIND = "audit"
KEEP = timedelta(days=90)
MOST = 10_000
PRUNE_EVERY = 100  # entries of a process
_AT_ONCE = 1_000  # entries that are pruned with one
_PAGE_LIMIT = 1_000
_WORD, _TEXT = 200, 1_000  # bytes


class AuditEntry(msgspec.Struct, frozen=True):
    """One action. `id` is its place in the list, `at` the store's clock."""

    id: str
    at: datetime
    who: str
    action: str
    target: str
    detail: str
    origin: str


class _KeptEntry(msgspec.Struct, frozen=True):
    """The content of an entry's record."""

    who: str
    action: str
    target: str
    detail: str
    origin: str


_decode = msgspec.json.Decoder(_KeptEntry).decode


class Audit:
    """`app.audit`: record and list the actions of operators.

    The last 10,000 entries of the last 90 days are kept; those that record entries delete what is older.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._recorded = 0

    @property
    def sync(self) -> SyncAudit:
        """The same with blocking calls."""
        return SyncAudit(self, self._app.portal)

    async def record(self, who: str, action: str, target: str, detail: str = "", *, origin: str = "") -> None:
        """Record that `who` did this to a target; `origin` is where the call came from, such as an address.

        Pass names and ids, never the arguments of jobs. Long texts are cut; control characters are made visible.
        """
        kept = _KeptEntry(
            who=_checked(who, _WORD),
            action=_checked(action, _WORD),
            target=_checked(target, _WORD),
            detail=_checked(detail, _TEXT),
            origin=_checked(origin, _WORD),
        )
        records = (await self._app.opened()).records
        await records.put(KIND, new_id(), 0, msgspec.json.encode(kept).decode())
        if self._recorded % PRUNE_EVERY == 0:
            await records.prune(KIND, keep=KEEP, most=MOST, limit=_AT_ONCE)
        self._recorded += 1

    async def list(self, limit: int = 100, *, before: str | None = None) -> Sequence[AuditEntry]:
        """List at most `limit` entries, the newest first; the next page is that `before` the id of the last one."""
        whole_number(limit, "limit", 1, _PAGE_LIMIT)
        if before is not None and not is_id(id_text(before)):
            raise ConfigError(f"before={before!r} is not the id of an entry: pass that of the last entry of a page")
        records = (await self._app.opened(install=False)).records
        return [_entry(record) for record in await records.page(KIND, limit, after=before, descending=True)]


class SyncAudit(Sync[Audit]):
    """`app.audit.sync`."""

    record = Blocking(Audit.record)
    list = Blocking(Audit.list)


def _checked(text: object, limit_bytes: int) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"a field of an audit entry is not a string: {text!r}")
    return clean(text, limit_bytes)


def _entry(record: StoredRecord) -> AuditEntry:
    kept = _decode(record.content)
    return AuditEntry(record.name, record.touched_at, kept.who, kept.action, kept.target, kept.detail, kept.origin)
