"""Records on their way to the brokers: what is sent, with which settings, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, Producer

from holdfast.backends.kafka.envelope import Headers
from holdfast.backends.kafka.location import KafkaLocation

_POLL: Final = 0.1
_POLL_EVERY: Final = 100  # records: the answers to some are received while others are sent
WITHIN_MS: Final = 20_000
"""Milliseconds until an event that no broker acknowledges is given up."""
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
PRODUCER_SETTINGS: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2",  # that of the Java client: other producers of the topic place a key likewise
    "delivery.timeout.ms": WITHIN_MS,
    "topic.metadata.propagation.max.ms": 3000,
}
_BY_KEY: Final = -1
_LONGER_MS: Final = 10_000  # what a transaction needs past the time limit of its records


def delivery_ms(location: KafkaLocation) -> int:
    """Return the milliseconds until an event of a transaction is given up, which may not outlast the transaction."""
    given = location.settings
    named = given.get("delivery.timeout.ms", given.get("message.timeout.ms"))  # two names of one setting
    if named is not None:
        return int(named) or WITHIN_MS
    return min(WITHIN_MS, int(given.get("transaction.timeout.ms", WITHIN_MS)))


def transactional_settings(location: KafkaLocation, transactional_id: str) -> dict[str, Any]:
    """Return the settings of a producer with transactions; those that the URL passes on win."""
    within = delivery_ms(location)
    own = {"delivery.timeout.ms": within, "transaction.timeout.ms": max(WITHIN_MS, within) + _LONGER_MS}
    return PRODUCER_SETTINGS | own | location.settings | {"transactional.id": transactional_id}


class OutgoingRecord(msgspec.Struct, frozen=True, gc=False):
    """What is sent. Without a partition, the key decides; without a time, that of the call."""

    topic: str
    key: str
    value: str
    headers: Headers
    partition_id: int = _BY_KEY
    millis: int = 0


class WrittenAt(msgspec.Struct, frozen=True, gc=False):
    """Where a record was written."""

    partition_id: int
    position: int


class Delivery:
    """The answers to the records of one call; `done` runs once, when all have been answered."""

    def __init__(self, number: int, done: Callable[[], object]) -> None:
        self.places: list[WrittenAt | None] = [None] * number
        self.error: KafkaError | None = None
        self._left = number
        self._done = done

    def callback(self, index: int) -> Any:
        """Return the callback of one record."""
        return partial(self._answered, index)

    def _answered(self, index: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.places[index] = WrittenAt(message.partition(), message.offset() + 1)
        elif self.error is None or self.error.code() in _PURGED:  # others are purged after the first failure
            self.error = error
        self._left -= 1
        if self._left == 0:
            self._done()

    def result(self) -> list[WrittenAt]:
        """Return the places of all records, which have been acknowledged."""
        return [place for place in self.places if place is not None]


def produce(send: Callable[..., None], record: OutgoingRecord, answered: Any) -> None:
    """Hand a record to the `produce` of a client; raises `BufferError` if its queue is full."""
    # By position: with names the call takes half as long again, 0.4 us.
    send(record.topic, record.value, record.key, record.partition_id, answered, None, record.millis, record.headers)


def produce_all(producer: Producer, records: Sequence[OutgoingRecord], delivery: Delivery) -> None:
    """Hand records to the client; while its queue is full, wait for answers, which otherwise wait for the next poll."""
    send = producer.produce
    for index, record in enumerate(records):
        while True:
            try:
                produce(send, record, delivery.callback(index))
            except BufferError:
                producer.poll(_POLL)
            else:
                break
        if index % _POLL_EVERY == 0:
            producer.poll(0)
