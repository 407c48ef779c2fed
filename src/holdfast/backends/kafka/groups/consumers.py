"""The port's verbs for consumers: positions are offsets that the group commits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from confluent_kafka import TopicPartition

from holdfast.backends.kafka.categories import KafkaCategories
from holdfast.backends.kafka.events import KafkaEvents
from holdfast.backends.kafka.groups.member import GroupMember
from holdfast.backends.kafka.groups.offsets import CommittedOffset, is_ours
from holdfast.backends.kafka.groups.refusals import refuse
from holdfast.backends.kafka.groups.shares import GroupShares
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import HoldfastError
from holdfast.model.allocation import Grant, Share, ShareState
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.store.foreign_events import PartitionEnds
from holdfast.store.stream_values import (
    Commit,
    CommitVerdict,
    ConsumerView,
    Fetched,
    ParkedView,
    ShareView,
    Start,
    Subscription,
)

_NOT_PAUSED: Final = "pause and reset consumers"


class GroupConsumers:
    """`ConsumerStore` over the shares that the groups have assigned to this process."""

    def __init__(
        self,
        location: KafkaLocation,
        topics: KafkaTopics,
        categories: KafkaCategories,
        events: KafkaEvents,
        shares: GroupShares,
        members: Mapping[str, GroupMember],
    ) -> None:
        self._location = location
        self._topics = topics
        self._categories = categories
        self._events = events
        self._shares = shares
        self._members = members
        self.subscriptions: dict[str, str] = {}
        """The category of each consumer that this process has subscribed."""

    async def subscribe(self, consumer: str, subscription: Subscription, start: Start) -> bool:
        """Register a consumer; a new group begins at `start`, with an offset for each partition."""
        if subscription.category is None:
            refuse("read the log")
        if subscription.stream is not None:
            refuse("read one stream")
        self.subscriptions[consumer] = subscription.category
        group, topic = self._location.group(consumer), self._location.topic(subscription.category)
        found = await self._categories.adopt(subscription.category)
        if found is None or any(place.topic == topic for place in await self._topics.group_offsets(group)):
            return False
        ends = await self._topics.ends(topic, found.partitions)
        places: list[TopicPartition] = []
        for number, position in enumerate(await self._categories.begins(found, ends, start)):
            begin = CommittedOffset(position, 0)
            places.append(TopicPartition(topic, number, begin.position, begin.metadata))
        return await self._topics.set_group_offsets(group, places)  # unless another node was first

    # --- the owner of a share -----------------------------------------------------------------------------------------

    async def fetch(  # noqa: D102 - the port states the contracts
        self, grant: Grant, *, after: int, limit: int, max_bytes: int = 16 * 1024 * 1024
    ) -> Fetched:
        held, member = self._shares.live(grant), self._members.get(grant.share.consumer)
        if held is None or member is None:
            return Fetched([], is_lost=True)
        try:
            events, passed = await held.buffer.take(after, limit, max_bytes, keep_after=held.position)
        except HoldfastError:  # the next fetch takes from another buffer
            member.read_again(held)
            raise
        if self._shares.live(grant) is None:
            return Fetched([], is_lost=True)
        head = max(after, passed, events[-1].position if events else 0)
        return Fetched(events, state=held.state, position=held.position, head=head, passed=passed)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:  # noqa: D102
        if commit.parks:
            refuse("park events")
        held, member = self._shares.live(grant), self._members.get(grant.share.consumer)
        if held is None or member is None or held.position not in {commit.after, commit.position}:
            return CommitVerdict.LOST
        if held.position == commit.position:
            return CommitVerdict.DONE
        verdict = await member.commit(held, commit.position)
        if verdict is CommitVerdict.DONE:
            held.position = commit.position
        return verdict

    async def verify(self, grant: Grant) -> int | None:  # noqa: D102
        held = self._shares.live(grant)
        return None if held is None else held.position

    async def release(self, grant: Grant) -> bool:  # noqa: D102
        return self._shares.release(grant)

    def begin(self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED) -> NoReturn:  # noqa: D102
        refuse("commit effects")

    begin_blocking = begin

    # --- for operators ------------------------------------------------------------------------------------------------

    async def consumers(self) -> list[ConsumerView]:
        """List the groups of this prefix whose offsets Holdfast has committed."""
        views = [await self._view(group) for group in await self._topics.groups(self._location.prefix)]
        return [view for view in views if view is not None]

    async def _view(self, group: str) -> ConsumerView | None:
        name = group.removeprefix(self._location.prefix)
        places = [place for place in await self._topics.group_offsets(group) if is_ours(place.metadata)]
        places.sort(key=lambda place: place.partition)
        if not places:
            return None
        owners = {
            (place.topic, place.partition): member.client_id
            for member in await self._topics.members(group)
            for place in member.assignment.topic_partitions
        }
        shares: list[ShareView] = []
        for topic in sorted({place.topic for place in places}):
            found = await self._topics.describe(topic)  # partitions may have been added since this process knows it
            if found is not None:
                category = topic.removeprefix(self._location.prefix)
                ends = await self._topics.ends(topic, found.partitions)
                mine = [place for place in places if place.topic == topic and place.partition < len(ends)]
                shares += [_share(name, category, place, ends, owners) for place in mine]
        return ConsumerView(name, Subscription(shares[0].share.category), False, tuple(shares)) if shares else None

    async def pause(self, consumer: str) -> bool:  # noqa: D102
        refuse(_NOT_PAUSED)

    async def resume(self, consumer: str) -> bool:  # noqa: D102
        refuse(_NOT_PAUSED)

    async def reset(self, consumer: str, to: Start) -> bool:  # noqa: D102
        refuse(_NOT_PAUSED)

    async def forget(self, consumer: str) -> bool:  # noqa: D102
        refuse(_NOT_PAUSED)

    async def parked(self, consumer: str, *, after: ParkedView | None = None, limit: int) -> list[ParkedView]:
        """Return none: nothing can be parked."""
        return []

    async def retry_parked(self, consumer: str, stream: str | None = None) -> int:  # noqa: D102
        refuse("park events")

    async def drop_parked(self, consumer: str, *, stream: str | None = None, event_id: str | None = None) -> int:  # noqa: D102
        refuse("park events")

    async def position_of(self, share: Share, at: datetime) -> int:  # noqa: D102
        return await self._events.position_at(share.category, share.partition_id, at)


def _share(
    consumer: str,
    category: str,
    place: TopicPartition,
    ends: list[PartitionEnds],
    owners: Mapping[tuple[str, int], Any],
) -> ShareView:
    committed = CommittedOffset.of(place.offset, place.metadata) or CommittedOffset(0, 0)
    owner = owners.get((place.topic, place.partition))
    return ShareView(
        share=Share(consumer, category, place.partition),
        state=ShareState.FREE if owner is None else ShareState.GRANTED,
        generation=committed.generation,
        owner=owner,
        target=None,
        position=committed.position,
        head=max(committed.position, ends[place.partition].head),
        behind=None,
        parked=0,
        since=timedelta(0),
    )
