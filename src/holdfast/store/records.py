"""The port's verbs for records: small texts that are replaced by compare-and-set.

Access tokens, audit entries and the progress of bulk operations are such records. What a text means is above the port.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import msgspec


class StoredRecord(msgspec.Struct, frozen=True):
    """A record of a kind, as it was read.

    `version` is 1 when the record is inserted and grows by one with every change. `touched_at` is when that was, and
    `age` how long ago, both by the store's clock.
    """

    name: str
    version: int
    content: str
    touched_at: datetime
    age: timedelta


class RecordStore(Protocol):
    """Records by kind and name. Every method is one atomic step of the store.

    Names of a kind are ordered by their bytes. If new names are always larger, as UUIDv7s are, this is their age.
    """

    async def put(self, kind: str, name: str, version: int, content: str) -> bool:
        """Replace a record that still has this version; version 0 inserts one that does not exist.

        1. Of several writers with the same version, one gets True. The others get False and have changed nothing.
        2. A record that was deleted can be inserted again, and has version 1 again.
        3. After `OutcomeUnknown` it may have been written: read the record again.
        """
        ...

    async def get(self, kind: str, name: str) -> StoredRecord | None:
        """Return a record; None if there is none."""
        ...

    async def page(
        self, kind: str, limit: int, *, after: str | None = None, descending: bool = False
    ) -> list[StoredRecord]:
        """List at most `limit` records of a kind by name, from the first one behind `after`; or from the last on."""
        ...

    async def delete(self, kind: str, name: str, version: int) -> bool:
        """Delete a record that still has this version; False if it has changed or does not exist."""
        ...

    async def prune(self, kind: str, *, keep: timedelta, most: int, limit: int) -> int:
        """Delete records of a kind, the first by name, while they are too old or too many; return how many.

        Too old: touched longer ago than `keep`. Too many: more than `most` are left. Looks at `limit` records at most:
        call it again while it returns that many.
        """
        ...
