"""The port's verbs for consumers: positions and parked events in the store, events in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.events import KafkaEvents, refuse
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.over_store import OverStore
from holdfast.backends.kafka.reading import KafkaReader, Place
from holdfast.errors import LeaseLost
from holdfast.model.allocation import Grant, Share
from holdfast.store.consumers import ConsumerStore
from holdfast.store.foreign_events import ForeignEvents, MovedCategory, PartitionEnds
from holdfast.store.stream_values import (
    Category,
    Commit,
    CommitVerdict,
    ConsumerView,
    Fetched,
    KnownStart,
    Park,
    Start,
    Subscription,
)


class AnchoredConsumers(OverStore[ConsumerStore]):
    """`ConsumerStore`: that of the store, except where events are read."""

    def __init__(
        self,
        store: ConsumerStore,
        foreign: ForeignEvents,
        events: KafkaEvents,
        categories: KafkaCategories,
        reader_of: Callable[[str], KafkaReader],
    ) -> None:
        super().__init__(store)
        self._foreign = foreign
        self._events = events
        self._categories = categories
        self._reader_of = reader_of

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:  # noqa: D102
        if subscription.stream is not None and subscription.category is not None:
            found = await self._categories.find(subscription.category)
            if found is None or found.home is not None:
                refuse("read one stream")
        is_known = any(view.name == consumer for view in await self._store.consumers())
        known = None if is_known else await self._known_start(subscription, start)
        if known is None:  # a known consumer starts even if no broker answers
            return await self._store.subscribe(consumer, subscription, start)
        return await self._foreign.subscribe(consumer, subscription, known)

    async def _known_start(self, subscription: Subscription, start: Start) -> KnownStart | None:
        """Return the positions in Kafka at which a start begins now; None if the subscription reads nothing there."""
        positions: dict[tuple[str, int], int] = {}
        for category in await self._categories.of(subscription):
            positions |= await self._begins(category, await self._categories.ends(category), start)
        return KnownStart(positions, start) if positions else None

    async def _begins(
        self, category: Category, ends: Sequence[PartitionEnds], start: Start
    ) -> dict[tuple[str, int], int]:
        found = await self._categories.begins(category, ends, start)
        return {(category.category, number): position for number, position in enumerate(found)}

    async def fetch(  # noqa: D102
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        share = grant.share
        home = await self._categories.home(share.category)
        if home is None:
            return await self._store.fetch(grant, after=after, limit=limit, max_bytes=max_bytes)
        reader = self._reader_of(share.consumer)
        place = {"generation": grant.generation, "after": after}
        buffer = reader.known(home, share.partition_id, **place)
        await self._categories.check_while_reading(home, is_new=buffer is None)
        if buffer is None:
            buffer = reader.begin(home, share.partition_id, **place)
        events, passed = await buffer.take(after, limit, max_bytes)
        # From here on the grant is compared with the store: what a node reads that has lost its share has no effect.
        seen = await self._foreign.look(grant, {event.stream for event in events}, limit=limit)
        if seen.is_lost:
            reader.drop(home, share.partition_id, grant.generation)
            return seen
        head = max(after, passed, events[-1].position if events else 0)
        return msgspec.structs.replace(seen, events=events, head=head, passed=passed)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Commit as the store does; a parked event is stored with its content, read again if it was not given."""
        home = await self._categories.home(grant.share.category) if commit.parks else None
        if home is not None:
            parks = tuple([await self._with_event(home, grant.share.partition_id, park) for park in commit.parks])
            commit = msgspec.structs.replace(commit, parks=parks)
        return await self._store.commit(grant, commit)

    async def _with_event(self, home: Home, partition_id: int, park: Park) -> Park:
        if park.event is not None:
            return park
        found = await self._events.read(home.category, partition_id, after=park.position - 1, limit=1)
        if not found or found[0].position != park.position:
            raise LeaseLost(f"the event at position {park.position} of {home}, partition {partition_id}, is gone")
        return msgspec.structs.replace(park, event=found[0])

    async def release(self, grant: Grant) -> bool:  # noqa: D102
        home = await self._categories.home(grant.share.category)
        if home is not None:
            self._reader_of(grant.share.consumer).drop(home, grant.share.partition_id, grant.generation)
        return await self._store.release(grant)

    async def consumers(self) -> list[ConsumerView]:
        """List the consumers; the oldest unhandled events are read for their age."""
        await self._categories.refresh()
        views = await self._store.consumers()
        places: dict[Share, Place] = {}
        for view in (share for each in views for share in each.shares if share.lag):
            home = await self._categories.home(view.share.category)
            if home is not None:
                places[view.share] = (home.topic, view.share.partition_id, view.position)
        ages = await self._events.ages(places.values()) if places else {}
        behind = {share: ages.get(place) for share, place in places.items()}
        return [_dated(view, behind) for view in views]

    async def reset(self, consumer: str, to: Start) -> bool:
        """Reset as the store does; where a topic was created again, that one is read from now on."""
        views = [view for view in await self._store.consumers() if view.name == consumer]
        categories = await self._categories.of(views[0].subscription) if views else []
        if not categories:
            return await self._store.reset(consumer, to)
        positions: dict[tuple[str, int], int] = {}
        moved: list[MovedCategory] = []
        for category in categories:
            again = await self._categories.created_again(category)
            if again is not None:
                moved.append(again)
            ends = await self._categories.ends(category) if again is None else again.ends
            positions |= await self._begins(category, ends, to)
        is_reset = await self._foreign.reset(consumer, KnownStart(positions, to), moved)
        for each in moved if is_reset else ():
            self._categories.moved(each.category)
        return is_reset

    async def position_of(self, share: Share, at: datetime) -> int:  # noqa: D102
        if await self._categories.home(share.category) is None:
            return await self._store.position_of(share, at)
        await self._store.parked(share.consumer, limit=1)  # raises if there is no such consumer
        return await self._events.position_at(share.category, share.partition_id, at)


def _dated(view: ConsumerView, behind: Mapping[Share, timedelta | None]) -> ConsumerView:
    shares = [msgspec.structs.replace(share, behind=behind.get(share.share, share.behind)) for share in view.shares]
    return msgspec.structs.replace(view, shares=tuple(shares))
