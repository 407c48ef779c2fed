"""Events in Kafka, everything else in a SQL store: positions, allocation, parked events, nodes, jobs.

```text
   append ─────────────────────────▶ topic
                                       │ assign(), read_committed
   consumer ◀── buffer ◀── reader ◀──────┘
       │
       └─ effect and position in one transaction of the store, fenced by the generation of the share
```

Kafka assigns nothing and knows no position: the leader's allocation in the store decides which node reads which
partition. A node that was cut off can still read; but its commit finds another generation and changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from holdfast.backends.kafka.buffers import BATCHES_AT_ONCE
from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.consumers import AnchoredConsumers
from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.events import REFUSALS, KafkaEvents
from holdfast.backends.kafka.joined import JoinedEvents
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.over_store import OverStore
from holdfast.backends.kafka.producing import KafkaAppender
from holdfast.backends.kafka.reading import KafkaReader
from holdfast.backends.kafka.settings_check import checked_location
from holdfast.backends.kafka.topic_health import AnchoredInsight
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.concurrency.per_process import PerProcess
from holdfast.errors import ConfigError
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend, Notifier
from holdfast.store.capabilities import Capabilities
from holdfast.store.consumers import ConsumerStore
from holdfast.store.events import EventStore
from holdfast.store.stream_values import Survey
from holdfast.store.streams import Streams

_REFRESH: Final = 5.0  # seconds between two looks of a leader for new topics and partitions


class AnchoredNotifier(OverStore[Notifier]):
    """`Notifier`: that of the store, and records that have arrived in this process."""

    def __init__(self, store: Notifier) -> None:
        super().__init__(store)
        self._listeners: set[Callable[[], None]] = set()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: D102 - the port states the contracts
        unlisten = self._store.listen(wake)
        self._listeners.add(wake)

        def stop() -> None:
            self._listeners.discard(wake)
            unlisten()

        return stop

    def arrived(self) -> None:
        """Wake the listeners of this process; called by the threads of readers."""
        for wake in list(self._listeners):
            with suppress(RuntimeError):  # its loop was closed before it stopped to listen
                wake()


class AnchoredAllocations(OverStore[AllocationStore]):
    """`AllocationStore`: that of the store; the leader also looks for new topics and partitions."""

    def __init__(self, store: AllocationStore, consumers: ConsumerStore, categories: KafkaCategories) -> None:
        super().__init__(store)
        self._consumers = consumers
        self._categories = categories
        self._refreshed = -_REFRESH

    async def survey(self) -> Survey:
        """Survey the store; look at the topics now and then, in the background: a leader does not wait for brokers."""
        if time.monotonic() - self._refreshed >= _REFRESH:
            self._refreshed = time.monotonic()
            views = await self._consumers.consumers()
            named = {view.subscription.category for view in views if view.subscription.category is not None}
            self._categories.refresh_soon(named)
        return await self._store.survey()


@dataclass(frozen=True)
class AnchoredStreams:
    """`Streams` with the events in Kafka."""

    store: Streams
    events: EventStore
    consumers: ConsumerStore
    allocations: AllocationStore
    categories: KafkaCategories
    topics: KafkaTopics
    readers: Mapping[str, KafkaReader]
    """By consumer; those that this process has read for."""

    @property
    def foreign(self) -> Any:
        """That of the store."""
        return self.store.foreign

    def join(self, using: object) -> EventStore:
        """Return the verbs for categories in the store, bound to the caller's transaction; others are refused."""
        return cast("EventStore", JoinedEvents(self.store.join(using), self.categories))


class _Parts:
    """The clients of one process."""

    def __init__(self, location: KafkaLocation, backend: Backend, in_store: Collection[str]) -> None:
        health = ClientHealth(location.url)
        store = backend.streams
        topics = KafkaTopics(location, health)
        self._appender = KafkaAppender(location, health)
        self._readers: dict[str, KafkaReader] = {}
        self.notifier = notifier = AnchoredNotifier(backend.notifier)

        def reader_of(consumer: str) -> KafkaReader:
            reader = self._readers.get(consumer)
            if reader is None or not reader.is_alive:
                self._readers[consumer] = reader = KafkaReader(location, health, consumer, notifier.arrived)
            return reader

        categories = KafkaCategories(location, topics, store.foreign, in_store)
        events = KafkaEvents(
            location,
            health,
            categories,
            topics,
            self._appender,
            store=store.events,
            foreign=store.foreign,
            is_inside=backend.transactions.is_inside,
            facts=backend.insight.facts,
        )
        consumers = AnchoredConsumers(store.consumers, store.foreign, events, categories, reader_of)
        self.insight = AnchoredInsight(backend.insight, store.foreign, consumers.consumers, categories, topics)
        self.streams = AnchoredStreams(
            store=store,
            events=events,
            consumers=cast("ConsumerStore", consumers),
            allocations=cast("AllocationStore", AnchoredAllocations(store.allocations, store.consumers, categories)),
            categories=categories,
            topics=topics,
            readers=self._readers,
        )

    def close(self) -> None:
        """End the clients; blocks for a moment."""
        for reader in self._readers.values():
            reader.stop()
        self._appender.close()
        for reader in self._readers.values():
            reader.join()


class AnchoredBackend(OverStore[Backend]):
    """`Backend`: that of a SQL store, with events in Kafka."""

    def __init__(self, store: Backend, location: KafkaLocation, in_store: Collection[str]) -> None:
        super().__init__(store)
        self.url = f"{store.url}, events in {location.url}"
        self.events_url = location.url
        self.location = location
        self._parts = PerProcess(lambda: _Parts(location, store, in_store))

    @property
    def _here(self) -> _Parts:
        _ = self._store.streams  # the store's own parts first: one object of a process is made at a time
        return self._parts.here

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store, and what Kafka cannot do."""
        own = self._store.capabilities
        refusals = {**own.refusals, **REFUSALS}
        return msgspec.structs.replace(own, refusals=refusals, batches_at_once=BATCHES_AT_ONCE)

    @property
    def streams(self) -> AnchoredStreams:
        """Events, consumers and shares."""
        return self._here.streams

    @property
    def insight(self) -> AnchoredInsight:
        """Facts of the store and of the topics."""
        return self._here.insight

    @property
    def notifier(self) -> AnchoredNotifier:
        """Notifications of the store, and of records that have arrived."""
        return self._here.notifier

    async def close(self) -> None:
        """Close the clients, then the store."""
        parts = self._parts.take()
        if parts is not None:
            await parts.streams.categories.close()
            await asyncio.to_thread(parts.close)
        await self._store.close()


def open_events(store: Backend, url: str, in_store: Collection[str] = ()) -> Backend:
    """Return a store whose new categories have their events in Kafka, except those named in `in_store`, which may grow.

    Raises `ConfigError` for an invalid URL.
    """
    if not store.capabilities.has_streams or not store.capabilities.joins_transactions:
        raise ConfigError(
            f"events in Kafka need a SQL store next to it, for positions and effects, and {store.url} is not one: pass "
            "postgresql://…, mysql://… or sqlite://…"
        )
    return cast("Backend", AnchoredBackend(store, checked_location(url), in_store))
