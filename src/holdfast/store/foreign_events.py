"""The port's verbs for categories whose events another system keeps, such as Kafka.

Positions, shares and parked events stay in the store. A `home` is a text of that system's backend; it says where the
events are, and is stored with the category. A category has one home, and only `reset` changes it, when all events there
are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast.model.allocation import Grant
from holdfast.store.stream_values import Category, Fetched, KnownStart, Subscription


class PartitionEnds(NamedTuple):
    """The last position of a partition, and the last one that was deleted from its beginning."""

    head: int
    trimmed: int


class MovedCategory(NamedTuple):
    """A category with a new home, and the ends of its partitions there."""

    category: Category
    ends: Sequence[PartitionEnds]


FOREIGN_TOPICS: Final = "foreign_topics"
"""The fact of `Insight.facts` that holds a list of `ForeignTopic`, as JSON."""


class ForeignTopic(msgspec.Struct, frozen=True, kw_only=True):
    """How the other system keeps the events of a category; `trouble` says why that is unknown, or wrong.

    Events are deleted after `retention` seconds, and when a partition has more than `retention_bytes`; the oldest one
    that a consumer has not read is `unread_for` old. `stopped` names the shares whose next events are gone, and `added`
    is the number of partitions that are new. `hidden` says why the settings, of which `min_in_sync` and retention are,
    may not be read.
    """

    category: str
    topic: str
    trouble: str = ""
    replicas: int = 0
    min_in_sync: int | None = None
    retention: float | None = None
    retention_bytes: int | None = None
    unread_for: float | None = None
    stopped: tuple[str, ...] = ()
    added: int = 0
    hidden: str = ""


class ForeignEvents(Protocol):
    """Categories whose events are elsewhere. Every method is one atomic step, and safe to repeat."""

    async def open(self, name: str, home: str, partitions: int) -> Category:
        """Return the category; register it if it is unknown, and add the partitions that it lacks.

        Raises `ConfigError` if the store keeps its events, or if it has another home.
        """
        ...

    async def find(self, names: Collection[str]) -> list[Category]:
        """Return those of these categories that exist, wherever their events are."""
        ...

    async def all(self) -> list[Category]:
        """Return the categories whose events are elsewhere, by name."""
        ...

    async def note_ends(self, category: Category, ends: Sequence[PartitionEnds]) -> None:
        """Record the ends of the partitions, in order: `consumers`, `subscribe` and `reset` read them."""
        ...

    async def subscribe(self, consumer: str, subscription: Subscription, start: KnownStart) -> bool:
        """Register a consumer as `ConsumerStore.subscribe` does, at positions that the store cannot find itself."""
        ...

    async def reset(self, consumer: str, to: KnownStart, moved: Sequence[MovedCategory] = ()) -> bool:
        """Set the positions of a paused consumer as `ConsumerStore.reset` does, likewise.

        In the same step, `moved` categories get their new homes. Raises `ConfigError` if another consumer has positions
        in one of them: they would mean other events.
        """
        ...

    async def look(self, grant: Grant, streams: Collection[str], *, limit: int) -> Fetched:
        """Return what `ConsumerStore.fetch` returns, but without events and head.

        `parked_streams` are those of `streams` that have parked events.
        """
        ...

    async def passed(self, category: Category) -> dict[int, int]:
        """Return, for each partition, the position that all its readers have passed, at most its noted end.

        A reader whose share a leader has not added yet has passed nothing there. Parked events are stored with their
        content, and so keep nothing.
        """
        ...
