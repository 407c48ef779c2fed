"""The relay to a topic: a category of the store is copied to it, partition by partition, once and in order.

```text
   begin   init_transactions                    fences the former sender, ends what it left open
           committed offset of the group        "sent": the position in the store of the last event in the topic
   send    begin · produce · offsets · commit   records and "sent" become visible together
```

The group `holdfast-relay-<topic>` has no members: it is only the place of that offset. A sender reads it after it has
fenced the others, so it never misses what another has sent; and what it sends moves the offset in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from holdfast.backends.kafka.envelope import headers_of
from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation, check_topic
from holdfast.backends.kafka.outgoing import OutgoingRecord
from holdfast.backends.kafka.settings_check import checked_location
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.backends.kafka.transactions import GroupOffsets, TransactionalProducer
from holdfast.concurrency.per_process import PerProcess
from holdfast.errors import ConfigError, LeaseLost, StoreUnavailable
from holdfast.model.event import StoredEvent
from holdfast.store.relays import EventRelay, SentUpTo
from holdfast.store.stream_values import Category

_TIMEOUT: Final = 20.0
_NAME: Final = "holdfast-relay-"
_READER: Final = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",  # waits until offsets of a transaction that is ending are decided
}


class _Sender:
    """The producer of one partition under one grant; its thread sends one batch after the other."""

    def __init__(self, parts: _Clients, topic: str, partition_id: int, generation: int) -> None:
        self.generation = generation
        self._parts = parts
        self._topic = topic
        self._partition_id = partition_id
        self._producer: TransactionalProducer | None = None
        self._sent = SentUpTo()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{_NAME}{partition_id}")

    async def begin(self) -> SentUpTo:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._begin)

    async def send(self, events: Sequence[StoredEvent]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._send, events)

    def _begin(self) -> SentUpTo:
        if self._producer is None or self._producer.is_broken:
            doing = f"begin to relay to partition {self._partition_id} of topic {self._topic}"
            own = f"{_NAME}{self._topic}-{self._partition_id}"
            self._producer = TransactionalProducer(self._parts.location, self._parts.health, own, doing)
            self._sent = self._parts.sent_to(self._partition_id, doing)  # after the fence, never before
        return self._sent

    def _send(self, events: Sequence[StoredEvent]) -> None:
        doing = f"relay {len(events)} events to partition {self._partition_id} of topic {self._topic}"
        if self._producer is None or self._producer.is_broken or events[0].position <= self._sent.position:
            raise StoreUnavailable(f"{doing}: what was sent last must be read again")
        last = SentUpTo(events[-1].position, events[-1].id)
        records = [self._record(event) for event in events]
        try:
            self._producer.write(records, doing, self._parts.offsets(self._partition_id, last))
        except LeaseLost as error:  # if this node still owns the share, it fences the other in turn
            raise StoreUnavailable(f"{doing}: another process sends to it by now: {error}") from error
        self._sent = last

    def _record(self, event: StoredEvent) -> OutgoingRecord:
        headers, millis = headers_of(event, event.version), event.recorded_us // 1000
        return OutgoingRecord(self._topic, event.stream, event.payload, headers, self._partition_id, millis)

    def close(self) -> None:
        """End client and thread, after what was begun; does not block."""
        self._thread.submit(self._drop)
        self._thread.shutdown(wait=False)

    def _drop(self) -> None:
        self._producer = None  # the client ends in this thread, because that takes a moment


class _Clients:
    """The clients of one process."""

    def __init__(self, location: KafkaLocation, topic: str) -> None:
        self.location = location
        self.health = ClientHealth(location.url)
        self.topics = KafkaTopics(location, self.health)
        self.senders: dict[int, _Sender] = {}
        self.group = f"{_NAME}{topic}"
        self._topic = topic
        self._reader = Consumer(_READER | location.client(self.health.on_error) | {"group.id": self.group})
        self._group_metadata: Any = self._reader.consumer_group_metadata()

    def sent_to(self, partition_id: int, doing: str) -> SentUpTo:
        """Return what was sent last to a partition; blocks."""
        try:
            (found,) = self._reader.committed([TopicPartition(self._topic, partition_id)], _TIMEOUT)
        except KafkaException as error:
            raise mapped(error_of(error), doing, self.health) from error
        if found.error is not None:
            raise mapped(found.error, doing, self.health)
        return SentUpTo(found.offset, found.metadata or "") if found.offset >= 0 else SentUpTo()

    def offsets(self, partition_id: int, last: SentUpTo) -> GroupOffsets:
        """Return the offset that commits with a batch."""
        place = TopicPartition(self._topic, partition_id, last.position, last.event_id)
        return GroupOffsets([place], self._group_metadata)

    def close(self) -> None:
        for sender in self.senders.values():
            sender.close()
        self._reader.close()


class KafkaRelay:
    """`EventRelay` to a topic."""

    def __init__(self, location: KafkaLocation, topic: str) -> None:
        self._location = location
        self._topic = topic
        self._clients = PerProcess(lambda: _Clients(location, topic))

    async def partitions(self) -> int | None:  # noqa: D102 - the port states the contracts
        found = await self._clients.here.topics.describe(self._topic)
        return None if found is None else found.partitions

    async def check(self, category: Category, elsewhere: Sequence[Category]) -> None:  # noqa: D102
        for other in elsewhere:
            if Home.of(other).topic == self._topic:
                raise ConfigError(
                    f"topic {self._topic} keeps the events of category {other.category!r}, which are appended there "
                    f"directly: their order with relayed ones would be lost. Relay {category.category!r} to another "
                    "topic"
                )
        topics = self._clients.here.topics
        found = await topics.describe(self._topic) or await topics.create(self._topic, category.partitions)
        if found.partitions != category.partitions:
            raise ConfigError(
                f"topic {self._topic} has {found.partitions} partitions, and category {category.category!r} has "
                f"{category.partitions}: partition by partition is relayed, so the numbers must be equal. Name a topic "
                "that has as many (one that does not exist is created), or a new category with "
                f'app.category("…", partitions={found.partitions})'
            )

    async def begin(self, partition_id: int, generation: int) -> SentUpTo:  # noqa: D102
        clients = self._clients.here
        sender = clients.senders.get(partition_id)
        if sender is None or sender.generation != generation:
            if sender is not None:
                sender.close()
            sender = clients.senders[partition_id] = _Sender(clients, self._topic, partition_id, generation)
        return await sender.begin()

    async def send(self, partition_id: int, generation: int, events: Sequence[StoredEvent]) -> None:  # noqa: D102
        sender = self._clients.here.senders.get(partition_id)
        if sender is None or sender.generation != generation:
            raise StoreUnavailable(f"partition {partition_id} of topic {self._topic} is sent to under another grant")
        await sender.send(events)

    def end(self, partition_id: int, generation: int) -> None:  # noqa: D102
        clients = self._clients.made
        sender = clients and clients.senders.get(partition_id)
        if clients and sender and sender.generation == generation:
            del clients.senders[partition_id]
            sender.close()

    async def begin_again(self, partitions: int) -> None:  # noqa: D102
        clients = self._clients.here
        for number in range(partitions):  # a frozen sender could still commit its batch, and its offset with it
            sender = _Sender(clients, self._topic, number, 0)
            try:
                await sender.begin()
            finally:
                sender.close()
        await clients.topics.forget_group(clients.group)

    async def close(self) -> None:  # noqa: D102
        clients = self._clients.take()
        if clients is not None:
            await asyncio.to_thread(clients.close)


def open_relay(url: str, topic: str) -> EventRelay:
    """Return the relay to a topic, not yet connected; raises `ConfigError` for an invalid URL or topic."""
    return KafkaRelay(checked_location(url), check_topic(topic))
