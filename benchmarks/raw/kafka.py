"""Events in Kafka by hand: confluent-kafka with the settings of Holdfast, effects and positions in PostgreSQL.

It does: idempotent, acknowledged by all replicas, ids made by the client, in a header; a batch in a transaction of
Kafka, or without one; assigned partitions, committed records only, decoded payloads; effects of a batch in one
transaction with the positions of its partitions, each moved only from where it was, under a generation.

It does not: check names or payloads, know categories, nodes, leaders or parked events, or read each partition by
itself: a batch has records of any.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import confluent_kafka as kafka
import msgspec
from confluent_kafka import admin

from benchmarks.raw.common import decode, uuids
from benchmarks.raw.postgres import connect

_client: Any = admin  # its annotations are partial
_TIMEOUT = 60.0
_MORE = 0.02  # seconds to wait for the rest of a batch, as Holdfast does
_PRODUCER = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2"}
_READER = {
    "group.id": "raw",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 4000,
    "fetch.wait.max.ms": 50,
}
_SCHEMA = """
create table raw_place (part integer primary key, generation bigint not null, pos bigint not null)
    with (fillfactor = 50);
create table raw_effect (id uuid not null, n bigint not null);
"""
_MOVE = """
update raw_place set pos = given.pos
from unnest(%s::integer[], %s::bigint[], %s::bigint[]) as given (part, pos, was)
where raw_place.part = given.part and generation = 1 and raw_place.pos = given.was
"""


class Topics(NamedTuple):
    """The URL of a broker with a prefix of topics, and what the client needs."""

    url: str
    servers: str
    prefix: str

    def settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers, "topic.metadata.propagation.max.ms": "3000"}


@contextmanager
def topics(url: str) -> Generator[Topics]:
    """Give a prefix of topics; delete them at the end."""
    servers, prefix = urlsplit(url).netloc, f"{urlsplit(url).path.strip('/')}bench-{secrets.token_hex(6)}."
    client = _client.AdminClient({"bootstrap.servers": servers})
    try:
        yield Topics(f"kafka://{servers}/{prefix}", servers, prefix)
    finally:
        there = [name for name in client.list_topics(timeout=_TIMEOUT).topics if name.startswith(prefix)]
        if there:
            for each in client.delete_topics(there).values():
                each.result(_TIMEOUT)


def create(place: Topics, category: str, partitions: int) -> str:
    """Make a topic as Holdfast makes one; return its name once it can be written."""
    topic = place.prefix + category
    client = _client.AdminClient({"bootstrap.servers": place.servers})
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "cleanup.policy": "delete"}
    made = client.create_topics([_client.NewTopic(topic, num_partitions=partitions, config=config)])
    made[topic].result(_TIMEOUT)
    until = time.monotonic() + _TIMEOUT
    while len(client.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions) < partitions:
        if time.monotonic() > until:
            message = f"topic {topic} was not made"
            raise RuntimeError(message)
    return topic


class Batches:
    """A producer that writes a batch and waits for its answers; in transactions, or without."""

    def __init__(self, place: Topics, topic: str, *, in_transactions: bool) -> None:
        self._topic = topic
        self._in_transactions = in_transactions
        own = {"transactional.id": f"raw-{secrets.token_hex(6)}"} if in_transactions else {}
        self._producer = kafka.Producer({**_PRODUCER, **place.settings(), **own})
        self._failed = 0
        if in_transactions:
            self._producer.init_transactions(_TIMEOUT)

    def _answered(self, error: Any, _: Any) -> None:
        self._failed += error is not None

    def write(self, events: Sequence[tuple[str, int]]) -> None:
        """Write (stream, number) of each event."""
        if self._in_transactions:
            self._producer.begin_transaction()
        for event_id, (stream, number) in zip(uuids(len(events)), events, strict=True):
            headers: list[tuple[str, str | bytes | None]] = [("holdfast-id", event_id), ("holdfast-name", "changed")]
            payload = msgspec.json.encode({"n": number})
            self._producer.produce(self._topic, payload, stream.encode(), headers=headers, on_delivery=self._answered)
            self._producer.poll(0)
        if self._producer.flush(_TIMEOUT) or self._failed:
            message = "records were not acknowledged"
            raise RuntimeError(message)
        if self._in_transactions:
            self._producer.commit_transaction(_TIMEOUT)


def _reader(place: Topics, topic: str, partitions: int, **own: Any) -> kafka.Consumer:
    reader = kafka.Consumer({**_READER, **place.settings(), **own})
    reader.assign([kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    return reader


def ids(place: Topics, topic: str, partitions: int) -> list[str]:
    """Return the ids of all committed records."""
    reader = _reader(place, topic, partitions, **{"enable.partition.eof": True})
    found: list[str] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            for message in reader.consume(4000, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                else:
                    found.append(_id_of(message))
    finally:
        reader.close()
    return found


def _id_of(message: Any) -> str:
    return str(dict(message.headers())["holdfast-id"].decode())


def prepare(target: str, partitions: int) -> None:
    """Make the tables of positions and effects."""
    with connect(target) as connection:
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        with connection.cursor() as cursor:
            cursor.executemany("insert into raw_place values (%s, 1, 0)", [(number,) for number in range(partitions)])
        connection.commit()


def consume(place: Topics, topic: str, target: str, *, partitions: int, batch: int, count: int) -> float:
    """Consume so many records; return the seconds from the first one to the last commit."""
    reader = _reader(place, topic, partitions)
    was = dict.fromkeys(range(partitions), 0)
    done, began = 0, 0.0
    try:
        with connect(target) as connection:
            while done < count:
                first = reader.poll(_TIMEOUT)
                if first is None:
                    message = f"{count - done} records are missing"
                    raise RuntimeError(message)
                messages: list[Any] = [first, *reader.consume(batch - 1, _MORE)]
                began = began or time.perf_counter()
                rows = [(_id_of(each), decode(each.value())["n"]) for each in messages]
                now = {each.partition(): each.offset() + 1 for each in messages}
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(
                        "insert into raw_effect select * from unnest(%s::uuid[], %s::bigint[])",
                        tuple(map(list, zip(*rows, strict=True))),
                    )
                    moved = cursor.execute(_MOVE, (list(now), list(now.values()), [was[part] for part in now]))
                    if moved.rowcount != len(now):
                        message = "a position was moved by another consumer"
                        raise RuntimeError(message)
                was |= now
                done += len(messages)
    finally:
        reader.close()
    if done != count:
        message = f"{done} records instead of {count}"
        raise RuntimeError(message)
    return time.perf_counter() - began
