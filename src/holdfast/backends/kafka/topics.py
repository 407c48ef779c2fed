"""Topics: create and describe them, find their ends and the offset of an instant, delete old records.

A position is the offset of the next record to read: the last record has the offset `position - 1`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    admin,
)

from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.errors import CategoryNotFound, StoreUnavailable
from holdfast.store.foreign_events import PartitionEnds

_client: Any = admin  # its annotations are partial
_TIMEOUT: Final = 10.0
_PING: Final = 2.0
_DESCRIBE: Final = 4.0  # a fetch waits for it, and must end soon after its share was lost
_LOOK: Final = 0.05
_POLL: Final = 0.2  # seconds between two looks at why a request has no answer
_LEADERS_WITHIN: Final = 10.0  # seconds for the election of a leader
_NO_LEADER: Final = frozenset(
    {
        KafkaError._NOENT,  # noqa: SLF001 - so the client says that it knows no leader
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_VISIBLE_WITHIN: Final = 15.0  # seconds until a new topic is known to the broker that answers
# Only `trim` deletes events, and the broker's clock, which all producers share, decides on the time of an event.
_CONFIG: Final = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "cleanup.policy": "delete"}


class TopicFacts(NamedTuple):
    """A topic as the cluster describes it. A topic that was deleted and created again has another `topic_id`."""

    topic: str
    topic_id: str
    partitions: int
    replicas: int


class _NoLeaderError(StoreUnavailable):
    """A partition has no leader yet, or not the one that the client knows."""


class KafkaTopics:
    """The topics of a cluster; for one process."""

    def __init__(self, location: KafkaLocation, health: ClientHealth) -> None:
        self._location = location
        self._health = health
        self._admin = _client.AdminClient(location.client(health.on_error))

    async def describe(self, topic: str) -> TopicFacts | None:
        """Return the facts of a topic, or None if it does not exist."""
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_DESCRIBE)[topic]
        try:
            found = await self._answer(asked, f"describe topic {topic}")
        except CategoryNotFound:
            return None
        replicas = min((len(part.replicas) for part in found.partitions), default=0)
        return TopicFacts(topic, str(found.topic_id), len(found.partitions), replicas)

    async def create(self, topic: str, partitions: int) -> TopicFacts:
        """Create a topic, with the broker's default replication; return the existing one if there is one."""
        new = _client.NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=_CONFIG)
        asked = self._admin.create_topics([new], operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT)[topic]
        try:
            await self._answer(asked, f"create topic {topic}", ignore=KafkaError.TOPIC_ALREADY_EXISTS)
            async with asyncio.timeout(_VISIBLE_WITHIN):
                while (found := await self.describe(topic)) is None or not await self._has_leaders(found):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise StoreUnavailable(f"topic {topic} was created, but is not visible after {_VISIBLE_WITHIN} s") from None
        return found

    async def _has_leaders(self, found: TopicFacts) -> bool:
        """Return whether every partition of a new topic answers."""
        try:
            await self.ends(found.topic, found.partitions)
        except (CategoryNotFound, StoreUnavailable):
            return False
        return True

    async def ends(self, topic: str, partitions: int) -> list[PartitionEnds]:
        """Return the ends of the partitions that a reader of committed records sees."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        last, first = await asyncio.gather(
            self._offsets(dict.fromkeys(places, _client.OffsetSpec.latest()), topic),
            self._offsets(dict.fromkeys(places, _client.OffsetSpec.earliest()), topic),
        )
        return [PartitionEnds(max(end, start), start) for end, start in zip(last, first, strict=True)]

    async def position_at(self, topic: str, partition_id: int, at: datetime) -> int | None:
        """Return the position after which the records at or after an instant begin; None if there are none."""
        spec = _client.OffsetSpec.for_timestamp(int(at.timestamp() * 1000))
        (found,) = await self._offsets({TopicPartition(topic, partition_id): spec}, topic)
        return None if found < 0 else found

    async def _offsets(self, asked: Mapping[TopicPartition, Any], topic: str) -> list[int]:
        """Return the offsets that were asked for; waits for leaders that are being elected.

        The client keeps the leaders that it knows for minutes, also after an error that says that they have changed.
        """
        until = time.monotonic() + _LEADERS_WITHIN
        while True:
            try:
                return await self._offsets_now(asked, topic)
            except _NoLeaderError as error:
                if time.monotonic() > until:
                    raise StoreUnavailable(str(error)) from error
                await asyncio.to_thread(self._metadata, topic)
                await asyncio.sleep(_LOOK)

    async def _offsets_now(self, asked: Mapping[TopicPartition, Any], topic: str) -> list[int]:
        answers = self._admin.list_offsets(
            dict(asked), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT
        )
        found = await asyncio.gather(
            *(self._answer(answer, f"find the ends of topic {topic}") for answer in answers.values())
        )
        by_place = {(place.topic, place.partition): each.offset for place, each in zip(answers, found, strict=True)}
        return [by_place[place.topic, place.partition] for place in asked]

    async def delete_up_to(self, topic: str, positions: Mapping[int, int]) -> None:
        """Delete the records up to these positions of some partitions."""
        places = [TopicPartition(topic, number, position) for number, position in positions.items()]
        answers = self._admin.delete_records(places, request_timeout=_TIMEOUT, operation_timeout=_TIMEOUT)
        for answer in answers.values():
            await self._answer(answer, f"delete old records of topic {topic}")

    async def groups(self, prefix: str) -> list[str]:
        """Return the consumer groups whose names begin so, with or without members."""
        found = await self._answer(self._admin.list_consumer_groups(request_timeout=_TIMEOUT), "list consumer groups")
        return sorted(group.group_id for group in found.valid if group.group_id.startswith(prefix))

    async def group_offsets(self, group: str) -> list[TopicPartition]:
        """Return the offsets that a group has committed; waits for transactions that are ending."""
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=_TIMEOUT
        )[group]
        found = await self._answer(asked, f"read the offsets of group {group}")
        return list(found.topic_partitions)

    async def set_group_offsets(self, group: str, places: list[TopicPartition]) -> bool:
        """Set the offsets of a group without members; False if it has members."""
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=_TIMEOUT
        )[group]
        doing = f"set the offsets of group {group}"
        found = await self._answer(asked, doing)
        refusals = [place.error for place in found.topic_partitions if place.error is not None]
        if any(error.code() == KafkaError.UNKNOWN_MEMBER_ID for error in refusals):  # no member asks here
            return False
        for error in refusals:
            raise mapped(error, doing, self._health)
        return True

    async def members(self, group: str) -> list[Any]:
        """Return the members of a group, as the client describes them."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=_TIMEOUT)[group]
        found = await self._answer(asked, f"describe group {group}")
        return list(found.members)

    async def forget_group(self, group: str) -> None:
        """Delete a consumer group without members, with its offsets."""
        asked = self._admin.delete_consumer_groups([group], request_timeout=_TIMEOUT)[group]
        await self._answer(asked, f"delete the consumer group {group}", ignore=KafkaError.GROUP_ID_NOT_FOUND)

    async def settings(self, topic: str) -> dict[str, str]:
        """Return the configuration of a topic."""
        resource = _client.ConfigResource(_client.ResourceType.TOPIC, topic)
        (answer,) = self._admin.describe_configs([resource], request_timeout=_TIMEOUT).values()
        found = await self._answer(answer, f"read the configuration of topic {topic}")
        return {name: entry.value for name, entry in found.items()}

    async def names(self) -> list[str]:
        """Return the names of all topics."""
        found = await asyncio.to_thread(self._metadata)
        return sorted(found.topics)

    def ping(self) -> None:
        """Raise `StoreUnavailable` if no broker answers soon; blocks."""
        self._metadata(timeout=_PING)

    def _metadata(self, topic: str | None = None, *, timeout: float = _TIMEOUT) -> Any:
        try:
            found = self._admin.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            self._admin.poll(0)
            raise mapped(error_of(error), f"reach {self._location.url}", self._health) from error
        self._health.answered()
        return found

    async def _answer(self, asked: Any, doing: str, *, ignore: int | None = None) -> Any:
        """Wait for the future of a request; when brokers refuse the login meanwhile, not until its time limit."""
        waiting, began = asyncio.wrap_future(asked), time.monotonic()
        try:
            while not (await asyncio.wait([waiting], timeout=_POLL))[0]:
                self._admin.poll(0)
                refusal = self._health.refused_since(began)
                if refusal is not None:
                    raise mapped(refusal, doing, self._health)
            found = await waiting
        except KafkaException as error:
            self._admin.poll(0)  # only now does the client report why it cannot connect
            if error_of(error).code() == ignore:
                return None
            if error_of(error).code() in _NO_LEADER:
                raise _NoLeaderError(f"{doing}: {error_of(error).str()}") from error
            raise mapped(error_of(error), doing, self._health) from error
        finally:
            waiting.cancel()  # no effect on one that was answered
        self._health.answered()
        return found
