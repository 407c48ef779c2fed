"""The records of a topic, as another program reads them."""

from __future__ import annotations

import secrets
import time
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


class SeenRecord(NamedTuple):
    partition_id: int
    key: str
    value: str
    headers: dict[str, str]


def records_of(servers: str, topic: str, *, isolation: str = "read_committed") -> list[SeenRecord]:
    """Return all records of a topic up to its end, in the order of each partition."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": f"test-{secrets.token_hex(4)}",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "isolation.level": isolation,
    }
    reader: Any = Consumer(settings)  # its annotations are partial
    try:
        partitions = reader.list_topics(topic, 20).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[SeenRecord] = []
        left, until = set(partitions), time.monotonic() + 60
        while left:
            assert time.monotonic() < until, f"partitions {left} of {topic} were not read to their end"
            message = reader.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
                found.append(SeenRecord(message.partition(), message.key().decode(), message.value().decode(), headers))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
        return found
    finally:
        reader.close()
