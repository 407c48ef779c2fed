"""The port's verbs for events, with the events in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.envelope import check_headers, headers_of
from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import OutgoingRecord
from holdfast.backends.kafka.producing import KafkaAppender
from holdfast.backends.kafka.reading import Place, first_recorded, read_once
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import CategoryNotFound, ConfigError, Unsupported
from holdfast.model.event import Appended, NewEvent, StoredEvent
from holdfast.model.instants import to_datetime
from holdfast.store.events import EventStore
from holdfast.store.foreign_events import ForeignEvents
from holdfast.store.stream_values import CategoryView

_RELAY: Final = "append to a category in the store, and copy it to Kafka with app.relay(…)"
REFUSALS: Final = {
    "append with expected_version": f"it has no conditional append; {_RELAY}",
    "count events": "it keeps no versions of streams, recognises no ids, and its offsets have gaps; "
    "use the id of an event to recognise a repeat",
    "record events by the clock of the store": "the clocks of its brokers decide",
    "join a transaction": f"a record is written at once, or in a transaction of Kafka; {_RELAY}",
    "read one stream": "it has no index by key; read the category, or subscribe to it and skip other streams",
    "trim a compacted topic": "it decides itself which records are kept; set cleanup.policy=delete, or produce a "
    "record without a value for each key that is not needed any more",
    "trim past unread events": "trim what all consumers have passed, or set retention.ms of the topic",
}
"""What Kafka cannot do, with the reason and the remedy."""


def refuse(what: str) -> NoReturn:
    """Raise `Unsupported` for something that Kafka cannot do."""
    raise Unsupported(f"Kafka cannot {what}: {REFUSALS[what]}")


class KafkaEvents:
    """`EventStore`: events of categories in Kafka there, all others in the store."""

    def __init__(  # noqa: PLR0913 - the clients of a process, and the parts of the store
        self,
        location: KafkaLocation,
        health: ClientHealth,
        categories: KafkaCategories,
        topics: KafkaTopics,
        appender: KafkaAppender,
        *,
        store: EventStore,
        foreign: ForeignEvents,
        is_inside: Callable[[], bool],
        facts: Callable[[], Awaitable[dict[str, str]]],
    ) -> None:
        """`facts` are those of the store, with its clock."""
        self._location = location
        self._health = health
        self._categories = categories
        self._topics = topics
        self._appender = appender
        self._store = store
        self._foreign = foreign
        self._is_inside = is_inside
        self._facts = facts

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:
        """Append events, all or none, to categories in Kafka or to categories in the store, not to both.

        In Kafka every event is new, whatever its id, and has no version.
        """
        names = {event.category for event in events}
        of_store = {name for name in names if await self._categories.stays_in_store(name)}
        if of_store == names:
            return await self._store.append(events)
        if of_store:
            raise ConfigError(
                f"one append to categories in the store ({', '.join(sorted(of_store))}) and to others in Kafka cannot "
                "be all or none: append to them one after the other"
            )
        if self._is_inside():
            refuse("join a transaction")
        if any(event.expected_version is not None for event in events):
            refuse("append with expected_version")
        for event in events:
            if event.headers:
                check_headers(event)
        homes = {name: Home.of(await self._categories.open(name)) for name in names}
        topics = [homes[event.category].topic for event in events]
        records = [
            OutgoingRecord(topic, event.stream, event.payload, headers_of(event))
            for topic, event in zip(topics, events, strict=True)
        ]
        places = await self._appender.append(records)
        return [
            Appended(event.id, 0, place.partition_id, place.position, is_new=True)
            for event, place in zip(events, places, strict=True)
        ]

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:
        """Return the next events of a partition; positions have gaps where Kafka has no record."""
        found = await self._categories.adopt(category)
        if found is None or found.home is None:
            return await self._store.read(category, partition_id, after=after, limit=limit)
        home = Home.of(found)
        partitions = (await self._categories.check(home)).partitions
        ends = await self._topics.ends(home.topic, partitions)
        if partition_id >= partitions or limit < 1:
            return []
        begin = max(after, ends[partition_id].trimmed)
        if begin >= ends[partition_id].head:
            return []
        return await asyncio.to_thread(
            read_once, self._location, self._health, home, partition_id, after=begin, limit=limit
        )

    async def read_stream(  # noqa: D102 - the port states the contracts
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        if await self._categories.home(category) is not None:
            refuse("read one stream")
        return await self._store.read_stream(category, stream, after=after, limit=limit, backwards=backwards)

    async def stream_version(self, category: str, stream: str) -> int:  # noqa: D102
        if await self._categories.home(category) is not None:
            refuse("read one stream")
        return await self._store.stream_version(category, stream)

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:  # noqa: D102
        found = await self._categories.adopt(category)
        if found is None or found.home is None:
            return await self._store.position_at(category, partition_id, at)
        home = Home.of(found)
        partitions = (await self._categories.check(home)).partitions
        if partition_id >= partitions:
            return 0
        position = await self._topics.position_at(home.topic, partition_id, at)
        if position is None:
            return (await self._topics.ends(home.topic, partitions))[partition_id].head
        return position

    async def ages(self, places: Collection[Place]) -> dict[Place, timedelta]:
        """Return the age of the first record past each place, by the store's clock; of some none may be found."""
        found = await asyncio.to_thread(first_recorded, self._location, self._health, places)
        now = await self._now_us()
        return {place: timedelta(microseconds=max(0, now - recorded)) for place, recorded in found.items()}

    async def _now_us(self) -> int:
        return int((await self._facts())["now_us"])

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:  # noqa: D102
        if await self._categories.stays_in_store(name):
            return await self._store.open_category(name, partitions)
        found = await self._categories.open(name, partitions)
        ends = await self._categories.ends(found)
        heads, trimmed = tuple(end.head for end in ends), tuple(end.trimmed for end in ends)
        return CategoryView(name, len(ends), heads, trimmed)

    async def categories(self) -> list[CategoryView]:  # noqa: D102
        await self._categories.refresh()
        return await self._store.categories()

    async def trim(  # noqa: D102
        self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False
    ) -> int:
        found = await self._categories.adopt(category)
        if found is None or found.home is None:
            return await self._store.trim(category, older_than=older_than, limit=limit, past_unread=past_unread)
        if past_unread:
            refuse("trim past unread events")
        return await self._trim(Home.of(found), older_than, limit)

    async def _trim(self, home: Home, older_than: timedelta, limit: int) -> int:
        """Delete old records up to the positions that all consumers have passed."""
        if (await self._topics.settings(home.topic)).get("cleanup.policy") != "delete":
            refuse("trim a compacted topic")
        found = await self._categories.find(home.category)
        if found is None:
            raise CategoryNotFound(home.category)
        ends = await self._categories.ends(found)
        passed = await self._foreign.passed(found)
        before = to_datetime(await self._now_us()) - older_than
        deleted: dict[int, int] = {}
        for number, end in enumerate(ends):
            old = await self._topics.position_at(home.topic, number, before)
            last = min(end.head if old is None else old, passed[number], end.trimmed + limit)
            if last > end.trimmed:
                deleted[number] = last
                limit -= last - end.trimmed
        if deleted:
            await self._topics.delete_up_to(home.topic, deleted)
            await self._categories.ends(found)
        return sum(last - ends[number].trimmed for number, last in deleted.items())
