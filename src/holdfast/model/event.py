"""Events: what is appended, what is read, and where an event is stored.

```text
   category "companies", 4 partitions
   ├── partition 0   position 1 2 3 4 5 …     every event of the partition, in commit order, without gaps
   │      stream "company-7"   version 1 2 …  the events of one entity, all in one partition
   │      stream "company-9"   version 1 …
   ├── partition 1   …
```

An event's `position` is its place in its partition; its `version` is its place in its stream. Both start at 1 and have
no gaps. Order is guaranteed within a partition, and therefore within a stream, but not between partitions.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.model.instants import to_datetime

DEFAULT_PARTITIONS: Final = 8
MAX_PARTITIONS: Final = 1024
ANY_VERSION: Final = None
"""The `expected_version` of an append that accepts any version."""
BINARY: Final = "~b64:"
"""The prefix of a payload that is not text, kept in base64: another system may keep any bytes. No JSON text starts with
it."""


def partition_of(stream: str, partitions: int) -> int:
    """Return the partition of a stream. The result is part of the storage format: it must never change."""
    return int.from_bytes(blake2b(stream.encode(), digest_size=8).digest()) % partitions


def partitions_read(stream: str | None, partitions: int) -> list[int]:
    """Return the partitions that a subscription to a category, or to one stream of it, reads."""
    return list(range(partitions)) if stream is None else [partition_of(stream, partitions)]


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to append, validated and encoded.

    `expected_version` is the version that the stream must have before this append (0: the stream must not exist yet).
    If one append has several events for a stream, only the first of them may set it.
    """

    id: str
    category: str
    stream: str
    name: str
    payload: str
    headers: dict[str, str] | None = None
    expected_version: int | None = ANY_VERSION

    def __repr__(self) -> str:
        """Show the event without its payload: it may contain secrets, and a repr ends up in logs."""
        return f"<NewEvent {self.id} ({self.category}/{self.stream}: {self.name})>"


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored."""

    id: str
    category: str
    stream: str
    name: str
    version: int
    partition_id: int
    position: int
    payload: str
    headers: dict[str, str] | None
    recorded_us: int

    def __repr__(self) -> str:
        """Show where the event is stored, without its payload."""
        place = f"{self.category}/{self.stream}@{self.version}, {self.partition_id}:{self.position}"
        return f"<{type(self).__name__} {self.name} ({place})>"

    @property
    def content(self) -> bytes:
        """The payload as bytes, exactly as they are stored."""
        if self.payload.startswith(BINARY):
            return b64decode(self.payload.removeprefix(BINARY))
        return self.payload.encode()

    @property
    def recorded_at(self) -> datetime:
        """When the event was appended, by the store's clock; it never decreases within a partition."""
        return to_datetime(self.recorded_us)


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where an event was stored. `is_new` is False if the id was already stored, so that nothing was written."""

    id: str
    version: int
    partition_id: int
    position: int
    is_new: bool
