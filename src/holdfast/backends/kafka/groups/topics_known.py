"""Events and categories without a store: the topics with the app's prefix are the list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.kafka.events import KafkaEvents
from holdfast.backends.kafka.groups.refusals import NeedsStore, refuse
from holdfast.errors import CategoryNotFound
from holdfast.model.event import StoredEvent
from holdfast.store.foreign_events import PartitionEnds
from holdfast.store.stream_values import Category, CategoryView


class KnownTopics(NeedsStore):
    """`ForeignEvents`, as far as it names categories: those that this process has used, in memory."""

    def __init__(self) -> None:
        super().__init__("pause and reset consumers")
        self._known: dict[str, Category] = {}

    async def open(self, name: str, home: str, partitions: int) -> Category:  # noqa: D102 - the port states the contracts
        known = self._known[name] = Category(name, 0, partitions, home)
        return known

    async def find(self, names: Collection[str]) -> list[Category]:  # noqa: D102
        return [self._known[name] for name in names if name in self._known]

    async def all(self) -> list[Category]:  # noqa: D102
        return [self._known[name] for name in sorted(self._known)]

    async def note_ends(self, category: Category, ends: Sequence[PartitionEnds]) -> None:
        """Do nothing: the ends are asked for where they are needed."""


class Nowhere:
    """`EventStore` where there is no store: what is not in Kafka does not exist."""

    def __getattr__(self, name: str) -> Any:
        """Refuse."""
        raise CategoryNotFound("this category has no topic yet: the first append, or app.category(…), creates it")


class GroupEvents(KafkaEvents):
    """`EventStore` with all categories in Kafka."""

    async def categories(self) -> list[CategoryView]:  # noqa: D102 - the port states the contracts
        prefix = self._location.prefix
        names = [topic.removeprefix(prefix) for topic in await self._topics.names() if topic.startswith(prefix)]
        return [await self.open_category(name) for name in names if name and not name.startswith("__")]

    async def read_stream(  # noqa: D102
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        refuse("read one stream")

    async def stream_version(self, category: str, stream: str) -> int:  # noqa: D102
        refuse("read one stream")

    async def trim(  # noqa: D102
        self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False
    ) -> int:
        refuse("trim")
