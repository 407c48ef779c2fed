"""The port's verbs for events: append, read, trim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.model.event import Appended, NewEvent, StoredEvent
from holdfast.store.stream_values import CategoryView


class EventLog(Protocol):
    """Append and read events: the part of an event store without positions, shares and nodes.

    Any method may raise `StoreUnavailable` (nothing was done) or `OutcomeUnknown` (it may have been done). Every method
    is one atomic step, and safe to repeat after either.
    """

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:
        """Append events, all or none; return the place of each, in order.

        1. Within a partition positions grow by one in the order of commits, without gaps: no event ever appears below
           a position that a reader has reached. The same holds for versions within a stream.
        2. An event whose id is known is not changed and is answered with `is_new=False` and its place, whatever else
           the call says about it. An id is known in all categories, for as long as its event is kept; an id that occurs
           twice in one call is written once.
        3. If `expected_version` of a new event is not the version of its stream, counting the new events before it in
           the call, nothing is written and `VersionConflict` names the stream, the expected and the actual version.
           Known events of the same call that come after it cause no conflict: a repeat of the whole call succeeds.
        4. Partitions are locked in ascending order, so that appends to several partitions cannot deadlock.
        5. A category that does not exist is created with the default number of partitions.
        6. Inside a transaction that `begin` or `join` opened, it joins that transaction, and the events are visible
           after its commit. Other appends to the same partitions wait for its end.
        """
        ...

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:
        """Return at most `limit` events of a partition with a position above `after`, in order.

        Raises `CategoryNotFound`. Trimmed events are skipped. Empty for a partition that the category does not have.
        """
        ...

    async def read_stream(
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        """Return at most `limit` events of a stream with a version above `after` (backwards: below it), in that order.

        None begins at the first event, backwards at the last. Empty for a stream or category that does not exist.
        """
        ...

    async def stream_version(self, category: str, stream: str) -> int:
        """Return the version of a stream, or 0 if it does not exist; also known after its events were trimmed."""
        ...

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:
        """Return the position after which the events recorded at or after an instant begin; at most log(n) reads.

        The head if there are none; the last trimmed position if all others are later. Raises `CategoryNotFound`.
        """
        ...


class EventStore(EventLog, Protocol):
    """Events with their categories: an `EventLog` whose retention depends on the positions of consumers."""

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:
        """Return the category; create it if it does not exist.

        1. `partitions` None accepts any existing number, and creates the category with `DEFAULT_PARTITIONS`.
        2. Raises `ConfigError` if it exists with another number of partitions, which cannot be changed.
        """
        ...

    async def categories(self) -> list[CategoryView]:
        """List all categories by name, with their heads; the cost does not grow with the number of events."""
        ...

    async def trim(self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False) -> int:
        """Delete at most `limit` events recorded longer ago than `older_than`, the oldest of each partition first.

        Returns how many.

        1. Deletes no event that a consumer has not passed yet, and no parked one, unless `past_unread`. A consumer that
           still lacks its share of a partition (`complete_shares`) has passed none of its events; a consumer of one
           stream has passed all events of other streams.
        2. Deletes only from the beginning of a partition: an event that must be kept also keeps all later ones.
        3. Positions and versions are not used again, and a trimmed stream keeps its version.
        4. With `past_unread`, a deleted event is no longer parked either. Positions of consumers do not move.
        5. Raises `CategoryNotFound`.
        """
        ...
