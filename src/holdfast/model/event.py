"""The event: what is appended, what is read, and where it lies.

```text
   category "companies", 4 partitions
   ├── partition 0   position 1 2 3 4 5 …     every event of the partition, in commit order, without holes
   │      stream "company-7"   version 1 2 …  the events of one thing, all in one partition
   │      stream "company-9"   version 1 …
   ├── partition 1   …
```

An event's `position` is its place in its partition, its `version` the place in its stream; both begin with 1 and have
no holes. Order is promised within a partition, and so within a stream; between partitions there is none.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.model.instants import to_datetime

DEFAULT_PARTITIONS: Final = 8
MAX_PARTITIONS: Final = 1024
ANY_VERSION: Final = None
"""The `expected_version` of an append that does not care."""


def partition_of(stream: str, partitions: int) -> int:
    """Return the partition in which a stream lies; the same on every machine and in every version, for ever."""
    return int.from_bytes(blake2b(stream.encode(), digest_size=8).digest()) % partitions


def partitions_read(stream: str | None, partitions: int) -> list[int]:
    """Return the partitions that a subscription to a category, or to one stream of it, reads."""
    return list(range(partitions)) if stream is None else [partition_of(stream, partitions)]


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to append; checked and encoded.

    `expected_version` is the version that the stream must have before this append (0: it must not exist yet). Of
    several events for one stream in one append only the first may carry it.
    """

    id: str
    category: str
    stream: str
    name: str
    payload: str
    headers: dict[str, str] | None = None
    expected_version: int | None = ANY_VERSION

    def __repr__(self) -> str:
        """Show the event, never what it carries."""
        return f"<NewEvent {self.id} ({self.category}/{self.stream}: {self.name})>"


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as the store keeps it."""

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
        """Show where the event lies, never what it carries."""
        place = f"{self.category}/{self.stream}@{self.version}, {self.partition_id}:{self.position}"
        return f"<{type(self).__name__} {self.name} ({place})>"

    @property
    def recorded_at(self) -> datetime:
        """When it was appended, by the store's clock; never earlier than the event before it in the partition."""
        return to_datetime(self.recorded_us)


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where an event went. `is_new` is False when its id was known already, and nothing was written for it."""

    id: str
    version: int
    partition_id: int
    position: int
    is_new: bool
