"""What `doctor` asks of the topics: whether they are the same, how they are replicated, and what they delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.events import KafkaEvents
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.over_store import OverStore
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import HoldfastError
from holdfast.store.backend import Insight
from holdfast.store.consumers import ConsumerStore
from holdfast.store.foreign_events import FOREIGN_TOPICS, ForeignEvents, ForeignTopic
from holdfast.store.stream_values import Category, ConsumerView

_MOST_SHARES: Final = 20  # of a topic, whose oldest unread event is read


class AnchoredInsight(OverStore[Insight]):
    """`Insight`: that of the store; its facts also describe the topics."""

    def __init__(
        self,
        store: Insight,
        foreign: ForeignEvents,
        consumers: ConsumerStore,
        categories: KafkaCategories,
        topics: KafkaTopics,
        events: KafkaEvents,
    ) -> None:
        super().__init__(store)
        self._foreign = foreign
        self._consumers = consumers
        self._categories = categories
        self._topics = topics
        self._events = events

    async def facts(self) -> dict[str, str]:
        """Return the facts of the store, and those of the topics as JSON."""
        found = await self._store.facts()
        views = await self._consumers.consumers()
        topics = await asyncio.gather(
            *(self._health(each, views, int(found["now_us"])) for each in await self._foreign.all())
        )
        return {**found, FOREIGN_TOPICS: msgspec.json.encode(topics).decode()}

    async def _health(self, category: Category, views: Iterable[ConsumerView], now_us: int) -> ForeignTopic:
        home = Home.of(category)
        try:
            facts = await self._categories.check(home)
            settings = await self._topics.settings(home.topic)
            retention = int(settings.get("retention.ms", "-1"))
            deletes = retention >= 0 and "delete" in settings.get("cleanup.policy", "")
            return ForeignTopic(
                category=home.category,
                topic=home.topic,
                replicas=facts.replicas,
                min_in_sync=int(settings.get("min.insync.replicas", "1")),
                retention=retention / 1000 if deletes else None,
                unread_for=await self._unread_for(home, views, now_us) if deletes else None,
            )
        except HoldfastError as error:
            return ForeignTopic(category=home.category, topic=home.topic, trouble=str(error))

    async def _unread_for(self, home: Home, views: Iterable[ConsumerView], now_us: int) -> float | None:
        """Return the age of the oldest unread event, in seconds; None if there is none."""
        places = {
            (view.share.partition_id, view.position)
            for consumer in views
            for view in consumer.shares
            if view.share.category == home.category and view.lag
        }
        oldest: list[int] = []
        for partition_id, position in sorted(places)[:_MOST_SHARES]:
            events = await self._events.read(home.category, partition_id, after=position, limit=1)
            oldest += [event.recorded_us for event in events]
        return max(0, now_us - min(oldest)) / 1_000_000 if oldest else None
