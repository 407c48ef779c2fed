"""The events of a run in Kafka: topics that the run creates, reads by the client alone, and deletes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from holdfast.app.open import open_backend
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.torture.history import now_us
from holdfast.torture.streams.names import PARTITIONS
from holdfast.torture.streams.records import DumpedEvent

_TIMEOUT: Final = 5.0
_DUMP_WITHIN: Final = 60.0  # seconds without a record, until the dump is given up
_AT_ONCE: Final = 1000
Partition = tuple[str, int]


def _ignore(_: object) -> None:
    """Faults are injected: that the broker is away is no news."""


class KafkaRunEvents:
    """The topics of a run: one for each category."""

    def __init__(self, url: str) -> None:
        self.url = url
        location: Any = open_backend("sqlite://", events=url)
        self._location = location.location
        self.shown: str = self._location.url
        self._topics = {self._location.topic(name): name for name in PARTITIONS}

    @cached_property
    def _admin(self) -> Any:  # kept: its answers never come once it is gone
        from confluent_kafka import admin

        client: Any = admin
        return client.AdminClient(self._location.client(_ignore))

    def create(self) -> None:
        """Delete what an earlier run has left; Holdfast itself creates the topics of this one."""
        self.drop()

    def drop(self) -> None:
        """Delete the topics."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            admin = self._admin
            there = [topic for topic in self._topics if topic in admin.list_topics(timeout=_TIMEOUT).topics]
            deleted: dict[str, Any] = admin.delete_topics(there) if there else {}
            for each in deleted.values():
                each.result(_TIMEOUT)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            raise StoreUnavailable(f"{self.shown}: {error.str()}") from failure

    def ends(self) -> dict[Partition, int]:
        """Return the end of each partition that a reader of committed records sees; raises what the client raises."""
        from confluent_kafka import IsolationLevel, TopicPartition, admin

        client: Any = admin
        asked = {
            TopicPartition(topic, number): client.OffsetSpec.latest()
            for topic, name in self._topics.items()
            for number in range(PARTITIONS[name])
        }
        self._admin.list_topics(timeout=_TIMEOUT)  # else it asks the leaders from before a restart
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT
        )
        return {
            (self._topics[place.topic], place.partition): answer.result(_TIMEOUT).offset
            for place, answer in answers.items()
        }

    def dumped(self) -> Iterator[DumpedEvent]:
        """Go over all committed events, partition by partition in order."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"group.id": "holdfast-torture", "enable.auto.commit": False, "enable.partition.eof": True}
        client = Consumer({**self._location.client(_ignore), **settings, "isolation.level": "read_committed"})
        try:
            left = {(topic, number) for topic, name in self._topics.items() for number in range(PARTITIONS[name])}
            client.assign([TopicPartition(topic, number, 0) for topic, number in left])
            while left:
                messages = client.consume(_AT_ONCE, _TIMEOUT) or client.consume(1, _DUMP_WITHIN)
                if not messages:
                    raise StoreUnavailable(f"{self.shown}: the events could not be read to their end")
                for message in messages:
                    error = message.error()
                    if error is None:
                        yield self._row(message)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so the client names it
                        left.discard((message.topic(), message.partition()))
        finally:
            client.close()

    def _row(self, message: Any) -> DumpedEvent:
        headers: dict[str, bytes] = dict(message.headers() or ())
        return DumpedEvent(
            at_us=now_us(),
            event=headers["holdfast-id"].decode(),
            category=self._topics[message.topic()],
            partition=message.partition(),
            position=message.offset() + 1,
            stream=message.key().decode(),
            version=0,
            name=headers["holdfast-name"].decode(),
        )


def events_of(url: str) -> KafkaRunEvents:
    """Return the events of a run at a URL of Kafka; raises `ConfigError`."""
    if not url.startswith("kafka://"):
        raise ConfigError(
            "--events names Kafka: give its URL, as in kafka://localhost:9092/, or kafka to start a broker"
        )
    return KafkaRunEvents(url)
