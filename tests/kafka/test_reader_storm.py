"""Partitions that are taken, dropped and read again from earlier positions, at random and at speed.

The offsets of a topic without transactions have no gaps, so each record must be the next one. Two mistakes that the
client invites are planted, and found.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition, admin

from holdfast.backends.kafka import buffers
from holdfast.backends.kafka.buffers import PartitionBuffer
from holdfast.backends.kafka.error_map import ClientHealth
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.reading import KafkaReader, Key

kafka_admin: Any = admin  # its annotations are partial
PARTITIONS, RECORDS = 4, 3000
LARGEST = 300  # records in a buffer, so that all of them are full at times
MUTE_AFTER = 8.0


class Overtaking(KafkaReader):
    """Gives records to the newest buffer, though the assignment of that has not run yet."""

    def _dispatch(self, key: Key, messages: Sequence[Any], *, is_record: bool) -> bool:
        buffer = self._wanted.get(key)
        if buffer is not None:
            self._buffers[key] = buffer
            buffer.is_assigned = True
        return super()._dispatch(key, messages, is_record=is_record)


class Pausing(KafkaReader):
    """Pauses a partition whose buffer is full."""

    def _keep_within_bounds(self) -> None:
        for (topic, number), buffer in self._buffers.items():
            if buffer.is_full:
                self._client.pause([TopicPartition(topic, number)])
            elif buffer.has_room and not buffer.is_assigned:
                self._client.resume([TopicPartition(topic, number)])


@pytest.fixture
def home(client: Any, prefix: str, servers: str) -> Home:
    """A topic in which the value of each record is its position."""
    topic = f"{prefix}storm"
    client.create_topics([kafka_admin.NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True})  # keeps the order
    for number in range(PARTITIONS):
        for place in range(1, RECORDS + 1):
            producer.produce(topic, str(place).encode(), f"s{place % 7}".encode(), partition=number)
        producer.poll(0)
    assert producer.flush(60) == 0
    return Home("storm", topic, "id")


@contextmanager
def reading(kind: type[KafkaReader], events: str) -> Iterator[KafkaReader]:
    reader = kind(KafkaLocation.parse(events), ClientHealth(events), "storm", lambda: None)
    try:
        yield reader
    finally:
        reader.stop()
        reader.join()


class PartitionReading:
    """What one partition has been read to, under the last grant."""

    def __init__(self, reader: KafkaReader, home: Home, number: int) -> None:
        self._reader = reader
        self._place: tuple[Home, int] = (home, number)
        self._generation = 1
        self.done = 0

    def buffer(self) -> PartitionBuffer:
        grant: dict[str, Any] = {"generation": self._generation, "after": self.done}
        return self._reader.known(*self._place, **grant) or self._reader.begin(*self._place, **grant)

    async def take(self, limit: int) -> None:
        events, _ = await self.buffer().take(self.done, limit, 1 << 20)
        expected = list(range(self.done + 1, self.done + 1 + len(events)))
        assert [event.position for event in events] == expected, (self._place[1], self.done)
        assert [int(event.payload) for event in events] == expected
        self.done += len(events)

    def move(self, to: int) -> None:
        """Lose the share, and be granted it again, at an earlier position or the same."""
        self._reader.drop(*self._place, self._generation)
        self._generation += 1
        self.done = to
        self.buffer()

    async def take_rest(self) -> None:
        heard = time.monotonic()
        while self.done < RECORDS:
            before = self.done
            await self.take(500)
            heard = heard if self.done == before else time.monotonic()
            assert time.monotonic() - heard < MUTE_AFTER, f"partition {self._place[1]} is mute at {self.done}"


async def storm(reader: KafkaReader, home: Home, seed: int, moves: int) -> None:
    chance = random.Random(seed)
    partitions = [PartitionReading(reader, home, number) for number in range(PARTITIONS)]
    for _ in range(moves):
        one = chance.choice(partitions)
        for _ in range(chance.randrange(3)):
            await one.take(chance.randint(1, 200))
        one.move(one.done if chance.random() < 0.3 else chance.randint(0, one.done))
    await asyncio.gather(*(one.take_rest() for one in partitions))


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MOST_RECORDS", LARGEST)


@pytest.mark.timeout(120)
async def test_a_storm_of_moves_skips_and_doubles_nothing_and_leaves_no_partition_mute(events: str, home: Home):
    with reading(KafkaReader, events) as reader:
        await storm(reader, home, seed=1, moves=80)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_longer_storms_skip_and_double_nothing(events: str, home: Home):
    for seed in (2, 3, 4):
        with reading(KafkaReader, events) as reader:
            await storm(reader, home, seed=seed, moves=200)


async def until_found(kind: type[KafkaReader], events: str, home: Home) -> None:
    for seed in range(5):
        with reading(kind, events) as reader:
            await storm(reader, home, seed=seed, moves=30)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "found"), [(Overtaking, "=="), (Pausing, "is mute")])
async def test_a_mistake_with_assignments_is_found(
    events: str, home: Home, monkeypatch: pytest.MonkeyPatch, kind: type[KafkaReader], found: str
):
    monkeypatch.setattr(f"{__name__}.MUTE_AFTER", 3.0)
    with pytest.raises(AssertionError, match=found):
        await until_found(kind, events, home)
