"""What `doctor` asks of the topics: whether they are the same, how they are replicated, and what they have deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.over_store import OverStore
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import ConfigError, HoldfastError
from holdfast.store.backend import Insight
from holdfast.store.foreign_events import FOREIGN_TOPICS, ForeignEvents, ForeignTopic, PartitionEnds
from holdfast.store.stream_values import Category, ConsumerView


class AnchoredInsight(OverStore[Insight]):
    """`Insight`: that of the store; its facts also describe the topics."""

    def __init__(
        self,
        store: Insight,
        foreign: ForeignEvents,
        consumers: Callable[[], Awaitable[list[ConsumerView]]],
        categories: KafkaCategories,
        topics: KafkaTopics,
    ) -> None:
        super().__init__(store)
        self._foreign = foreign
        self._consumers = consumers
        self._categories = categories
        self._topics = topics

    async def facts(self) -> dict[str, str]:
        """Return the facts of the store, and those of the topics as JSON."""
        found = await self._store.facts()
        categories = await self._foreign.all()  # before the look at consumers, which takes new partitions over
        views = await self._consumers()
        topics = await asyncio.gather(*(self._health(each, views) for each in categories))
        return {**found, FOREIGN_TOPICS: msgspec.json.encode(topics).decode()}

    async def _health(self, category: Category, views: Iterable[ConsumerView]) -> ForeignTopic:
        home = Home.of(category)
        try:
            facts = await self._categories.check(home)
            settings, hidden = await self._settings(home.topic)
            deletes = "delete" in settings.get("cleanup.policy", "")
            retention = _limit(settings, "retention.ms") if deletes else None
            ends = await self._topics.ends(home.topic, facts.partitions)
            return ForeignTopic(
                category=home.category,
                topic=home.topic,
                replicas=facts.replicas,
                min_in_sync=None if hidden else int(settings.get("min.insync.replicas", "1")),
                retention=None if retention is None else retention / 1000,
                retention_bytes=_limit(settings, "retention.bytes") if deletes else None,
                unread_for=None if retention is None else _unread_for(home.category, views),
                stopped=tuple(_stopped(home.category, views, ends)),
                added=max(0, facts.partitions - category.partitions),
                hidden=hidden,
            )
        except HoldfastError as error:
            return ForeignTopic(category=home.category, topic=home.topic, trouble=str(error))

    async def _settings(self, topic: str) -> tuple[dict[str, str], str]:
        """Return the settings of a topic, and why they may not be read: that is a separate right."""
        try:
            return await self._topics.settings(topic), ""
        except ConfigError as error:
            return {}, str(error)


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    """Return a setting of a topic; None if it is -1, which means that there is no limit."""
    limit = int(settings.get(name, "-1"))
    return None if limit < 0 else limit


def _stopped(category: str, views: Iterable[ConsumerView], ends: Sequence[PartitionEnds]) -> Iterable[str]:
    """Return the shares whose position is before the beginning or past the end of their partition."""
    for view in (share for each in views for share in each.shares if share.share.category == category):
        consumer, number = view.share.consumer, view.share.partition_id
        if number < len(ends) and not ends[number].trimmed <= view.position <= ends[number].head:
            yield (
                f"{consumer}, partition {number} of {category}: position {view.position}, and the topic has "
                f"{ends[number].trimmed} to {ends[number].head}"
            )


def _unread_for(category: str, views: Iterable[ConsumerView]) -> float | None:
    """Return the age of the oldest unread event, in seconds; None if there is none."""
    ages = [view.behind for each in views for view in each.shares if view.share.category == category and view.behind]
    return max(ages).total_seconds() if ages else None
