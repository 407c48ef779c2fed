"""The categories of an app: which of them keep their events in Kafka, and the ends of their partitions.

A category that the store knows has the home that the store names. One that it does not know gets a topic, or adopts the
topic of its name that others have made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from holdfast.backends.kafka.buffers import deleted
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.topics import KafkaTopics, TopicFacts
from holdfast.errors import ConfigError, HoldfastError
from holdfast.model.event import DEFAULT_PARTITIONS
from holdfast.store.foreign_events import ForeignEvents, MovedCategory, PartitionEnds
from holdfast.store.stream_values import Category, Start, StartAt, Subscription

_logger = logging.getLogger("holdfast.kafka")
_LOOK_AGAIN: Final = 0.5
_FRESH: Final = 5.0  # seconds for which the description of a topic is trusted while it is read


class KafkaCategories:
    """The homes of categories, as one process knows them."""

    def __init__(
        self, location: KafkaLocation, topics: KafkaTopics, foreign: ForeignEvents, in_store: Collection[str]
    ) -> None:
        """`in_store` names categories that get no topic; it may grow."""
        self._location = location
        self._topics = topics
        self._foreign = foreign
        self._in_store = in_store
        self._known: dict[str, Category] = {}
        self._described: dict[str, float] = {}
        self._gone: set[Home] = set()
        self._failed: set[str] = set()
        self._looking: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, name: str) -> Category | None:
        """Return a category that the store knows; its `home` is None if the store has its events."""
        known = self._known.get(name)
        if known is None:
            for category in await self._foreign.find([name]):
                self._known[name] = known = category
        return known

    async def home(self, name: str) -> Home | None:
        """Return the home of a category, or None if the store has its events, or does not know it."""
        known = await self.find(name)
        return None if known is None or known.home is None else Home.of(known)

    async def stays_in_store(self, name: str) -> bool:
        """Return whether the store has the events of a category, or is to have them."""
        found = await self.find(name)
        return name in self._in_store if found is None else found.home is None

    async def open(self, name: str, partitions: int | None = None) -> Category:
        """Return a category; one that is new gets a topic, unless there is one of its name."""
        known = await self.find(name)
        if known is None:
            found = await self._topics.describe(self._location.topic(name))
            if found is None:
                found = await self._topics.create(self._location.topic(name), partitions or DEFAULT_PARTITIONS)
            known = await self._adopt(name, found)
        if partitions not in {None, known.partitions} and known.home is not None:  # some may have been added since
            known = await self._adopt(name, await self.check(Home.of(known)))
        if partitions not in {None, known.partitions}:
            where = known.home or "in the store"
            raise ConfigError(f"category {name!r} has {known.partitions} partitions ({where}), not {partitions}")
        return known

    async def adopt(self, name: str) -> Category | None:
        """Return a category that the store knows, or whose topic exists; None if there is neither."""
        known = await self.find(name)
        if known is not None or name in self._in_store:
            return known
        found = await self._topics.describe(self._location.topic(name))
        return None if found is None else await self._adopt(name, found)

    async def _adopt(self, name: str, found: TopicFacts) -> Category:
        home = Home(name, found.topic, found.topic_id)
        known = await self._foreign.open(name, str(home), found.partitions)
        self._known[name] = known
        return known

    async def ends(self, category: Category) -> list[PartitionEnds]:
        """Return the ends of a category's partitions, and note them in the store; adds partitions that are new.

        Raises `EventsGone` if the topic is another one than that whose positions the store has.
        """
        home = Home.of(category)
        found = await self.check(home)
        if found.partitions > category.partitions:
            _logger.warning(
                "category %r: topic %s has %d partitions instead of %d; events of one stream may now be in two of them",
                *(home.category, home.topic, found.partitions, category.partitions),
            )
            category = await self._adopt(home.category, found)
        ends = await self._topics.ends(home.topic, found.partitions)
        await self._foreign.note_ends(category, ends)
        return ends

    async def check(self, home: Home) -> TopicFacts:
        """Return the facts of a topic; raises `EventsGone` if it was deleted, or deleted and created again."""
        self._described[home.topic] = time.monotonic()
        found = await self._look(home)
        if found is None or found.topic_id != home.topic_id:
            self._gone.add(home)
            self._known.pop(home.category, None)  # another process may reset its consumers
            raise deleted(home, is_back=found is not None)
        self._gone.discard(home)
        return found

    async def _look(self, home: Home) -> TopicFacts | None:
        found = await self._topics.describe(home.topic)
        if found is None:
            await asyncio.sleep(_LOOK_AGAIN)  # a broker that has just started may not know its topics yet
            found = await self._topics.describe(home.topic)
        return found

    async def created_again(self, category: Category) -> MovedCategory | None:
        """Return a category with the topic that has replaced its own; None if it is the same one.

        Raises `EventsGone` if there is none, and `ConfigError` if it has fewer partitions.
        """
        home = Home.of(category)
        found = await self._look(home)
        if found is None:
            raise deleted(home, is_back=False)
        if found.topic_id == home.topic_id:
            return None
        if found.partitions < category.partitions:
            raise ConfigError(
                f"topic {home.topic} was created again with {found.partitions} partitions, and category "
                f"{home.category!r} has {category.partitions}: add partitions to the topic"
            )
        now = home._replace(topic_id=found.topic_id)
        ends = await self._topics.ends(home.topic, found.partitions)
        return MovedCategory(category._replace(home=str(now), partitions=found.partitions), ends)

    def moved(self, category: Category) -> None:
        """Note that a category has another home by now."""
        self._known[category.category] = category

    async def begins(self, category: Category, ends: Sequence[PartitionEnds], start: Start) -> list[int]:
        """Return the positions at which a start begins now, for each partition of a category."""
        if not isinstance(start, datetime):
            return [_begin(end, start) for end in ends]
        topic = Home.of(category).topic
        found = [await self._topics.position_at(topic, number, start) for number in range(len(ends))]
        return [end.head if at is None else at for at, end in zip(found, ends, strict=True)]

    async def check_while_reading(self, home: Home, *, is_new: bool) -> None:
        """Check a topic before it is read from a position, and now and then afterwards, in the background.

        Raises `EventsGone` as `check` does, and `StoreUnavailable` if a new buffer cannot be checked.
        """
        if is_new or home in self._gone:
            await self.check(home)
        elif time.monotonic() - self._described.get(home.topic, -_FRESH) >= _FRESH:
            self._described[home.topic] = time.monotonic()
            self._soon(self._check_quietly(home))

    async def _check_quietly(self, home: Home) -> None:
        with suppress(HoldfastError):  # the next fetch raises it, or the reader is waiting for a broker itself
            await self.check(home)

    async def of(self, subscription: Subscription) -> list[Category]:
        """Return the categories in Kafka that a subscription reads; topics made by other programs are adopted."""
        if subscription.category is None:
            return await self._foreign.all()
        found = await self.adopt(subscription.category)
        return [] if found is None or found.home is None else [found]

    async def refresh(self, named: Collection[str] = ()) -> None:
        """Note the ends of all categories in Kafka; adopt the topics of these names.

        A broker that cannot be reached, or a topic that is gone, is logged once: its last known ends stay.
        """
        failed: set[str] = set()
        await asyncio.gather(*(self._try(name, partial(self.adopt, name), failed) for name in named))
        categories = await self._foreign.all()
        await asyncio.gather(*(self._try(each.category, partial(self.ends, each), failed) for each in categories))
        self._failed = failed

    def refresh_soon(self, named: Collection[str]) -> None:
        """Refresh in the background, unless that is being done."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._soon(self._refresh_quietly(named))

    async def _refresh_quietly(self, named: Collection[str]) -> None:
        try:
            await self.refresh(named)
        except HoldfastError as error:  # of the store: the leader's own calls fail likewise
            _logger.warning("could not look at the topics, trying again: %s", error)

    def _soon(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(call)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
        return task

    async def close(self) -> None:
        """End what runs in the background."""
        loop = asyncio.get_running_loop()
        own = [task for task in self._looking if task.get_loop() is loop]
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)

    async def _try(self, name: str, call: Callable[[], Awaitable[object]], failed: set[str]) -> None:
        try:
            await call()
        except HoldfastError as error:
            failed.add(name)
            if name not in self._failed:
                _logger.warning("category %r: could not look at its topic: %s", name, error)


def _begin(end: PartitionEnds, start: StartAt | int) -> int:
    if isinstance(start, StartAt):
        return end.trimmed if start is StartAt.BEGINNING else end.head
    return max(end.trimmed, min(start, end.head))
