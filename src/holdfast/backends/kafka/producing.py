"""Appends events: one by the idempotent producer, several in a transaction, so all or none.

```text
   one event     produce ──▶ acknowledged by all in-sync replicas
   several       begin ──▶ produce … ──▶ commit           an error before the commit aborts: nothing is visible
```

The producer removes repeats of its own requests. It cannot recognise an event that the caller appends again: a call
without an answer raises `OutcomeUnknown`, and a repeat may write the event twice, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Producer

from holdfast.backends.kafka.envelope import Headers
from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped, mapped_append, mapped_undone
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.errors import OutcomeUnknown, StoreUnavailable

_logger = logging.getLogger("holdfast.kafka")
_POLL: Final = 0.1
_WITHIN_MS: Final = 20_000
"""Milliseconds until an event that no broker acknowledges is given up."""
_TRANSACTION: Final = _WITHIN_MS / 1000 + 10
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
_SETTINGS: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2",  # that of the Java client: other producers of the topic place a key likewise
    "delivery.timeout.ms": _WITHIN_MS,
    "topic.metadata.propagation.max.ms": 3000,
}


class OutgoingRecord(NamedTuple):
    """What is sent."""

    topic: str
    key: str
    value: str
    headers: Headers


class WrittenAt(NamedTuple):
    """Where a record was written."""

    partition_id: int
    position: int


class _Delivery:
    """The answers to the records of one call; `done` runs once, when all have been answered."""

    def __init__(self, number: int, done: Callable[[], object]) -> None:
        self.places: list[WrittenAt | None] = [None] * number
        self.error: KafkaError | None = None
        self._left = number
        self._done = done

    def callback(self, index: int) -> Any:
        """Return the callback of one record."""

        def answered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self.places[index] = WrittenAt(message.partition(), message.offset() + 1)
            elif self.error is None or self.error.code() in _PURGED:  # others are purged after the first failure
                self.error = error
            self._left -= 1
            if self._left == 0:
                self._done()

        return answered

    def result(self) -> list[WrittenAt]:
        """Return the places of all records, which have been acknowledged."""
        return [place for place in self.places if place is not None]


class KafkaAppender:
    """The producers of one process."""

    def __init__(self, location: KafkaLocation, health: ClientHealth) -> None:
        self._location = location
        self._health = health
        self._single: Producer | None = None
        self._transactional: Producer | None = None
        self._failure: KafkaError | None = None
        """Why the last producer of single events has failed."""
        self._making = threading.Lock()
        self._closed = threading.Event()
        self._poller: threading.Thread | None = None
        # One thread: a producer has one transaction at a time.
        self._transactions = ThreadPoolExecutor(1, thread_name_prefix="holdfast-kafka-append")

    async def append(self, records: Sequence[OutgoingRecord]) -> list[WrittenAt]:
        """Write records, all or none; return their places, in order."""
        if len(records) == 1:
            return [await self._append_one(records[0])]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._transactions, self._append_all, records)

    async def _append_one(self, record: OutgoingRecord) -> WrittenAt:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop of the caller was closed: no call waits any more
                loop.call_soon_threadsafe(answered.set)

        delivery = _Delivery(1, tell)
        doing = f"append to {record.topic}"
        try:
            _produce(self._polled(), record, delivery.callback(0))
        except KafkaException as error:
            raise mapped(error_of(error), doing, self._health) from error
        except BufferError:
            raise StoreUnavailable(f"{doing}: too many events wait for an answer of the brokers") from None
        await answered.wait()
        if delivery.error is not None:
            is_unsent = delivery.error.code() == KafkaError._PURGE_QUEUE  # noqa: SLF001
            cause = self._failure if is_unsent and self._failure is not None else delivery.error
            raise (mapped if is_unsent else mapped_append)(cause, doing, self._health)
        self._health.answered()
        return delivery.result()[0]

    def _polled(self) -> Producer:
        """Return the producer of single events, whose answers a thread receives."""
        producer = self._single
        if producer is None:
            with self._making:
                producer = self._single
                if producer is None:
                    producer = Producer(_SETTINGS | self._location.client(self._health.on_error))
                    poller = threading.Thread(
                        target=self._poll, args=(producer,), name="holdfast-kafka-producer", daemon=True
                    )
                    self._single, self._poller = producer, poller
                    poller.start()
        return producer

    def _poll(self, producer: Producer) -> None:
        """Receive answers until the end, or until the producer has failed."""
        try:
            while not self._closed.is_set():
                producer.poll(_POLL)
            producer.flush(1)
        except KafkaException as failure:  # as after its sequence of records was broken: it sends nothing more
            _logger.warning("a producer has failed, and the next append makes another: %s", error_of(failure).str())
            with self._making:
                self._failure = error_of(failure)
                if self._single is producer:
                    self._single = None
            _answer_waiting(producer)

    def _append_all(self, records: Sequence[OutgoingRecord]) -> list[WrittenAt]:
        """Write records in a transaction."""
        doing = f"append {len(records)} events to {', '.join(sorted({record.topic for record in records}))}"
        producer = self._begin(doing)
        delivery = _Delivery(len(records), lambda: None)
        try:
            for index, record in enumerate(records):
                _produce_or_wait(producer, record, delivery.callback(index))
            producer.flush(_TRANSACTION)
        except KafkaException as error:
            self._abort(producer)
            raise mapped_undone(error_of(error), doing, self._health) from error
        if delivery.error is not None:
            self._abort(producer)
            raise mapped_undone(delivery.error, doing, self._health)
        if None in delivery.places:
            self._abort(producer)
            raise StoreUnavailable(f"{doing}: the brokers did not acknowledge all events in time; none was written")
        self._commit(producer, doing)
        self._health.answered()
        return delivery.result()

    def _begin(self, doing: str) -> Producer:
        try:
            if self._transactional is None:
                own = {"transactional.id": f"holdfast-append-{uuid4()}", "transaction.timeout.ms": _WITHIN_MS + 10_000}
                producer = Producer(_SETTINGS | self._location.client(self._health.on_error) | own)
                producer.init_transactions(_TRANSACTION)
                self._transactional = producer
            self._transactional.begin_transaction()
        except KafkaException as error:
            self._transactional = None
            raise mapped(error_of(error), doing, self._health) from error
        return self._transactional

    def _abort(self, producer: Producer) -> None:
        """Abort: no record becomes visible; at the latest when the broker's time limit of the transaction has passed.

        The producer is not used again: after a record that the broker refused, its sequence numbers have a gap, and its
        next transaction would fail, too.
        """
        self._transactional = None
        with suppress(KafkaException):
            producer.abort_transaction(_TRANSACTION)

    def _commit(self, producer: Producer, doing: str) -> None:
        try:
            producer.commit_transaction(_TRANSACTION)
        except KafkaException as failure:
            error = error_of(failure)
            if error.txn_requires_abort():
                self._abort(producer)
                raise mapped_undone(error, doing, self._health) from failure
            self._transactional = None
            message = f"{doing}: the commit was not answered: {error.str()}"
            raise OutcomeUnknown(message, is_repeatable=False) from failure

    def close(self) -> None:
        """Send what is waiting, and end."""
        self._closed.set()
        self._transactions.shutdown(wait=False, cancel_futures=True)
        if self._poller is not None:
            self._poller.join(2)


def _answer_waiting(producer: Producer) -> None:
    """Tell those who wait for a producer that has failed that their records will not be sent, or were sent in vain."""
    producer.purge()
    while len(producer):
        with suppress(KafkaException):  # the failure again
            producer.poll(_POLL)


def _produce(producer: Producer, record: OutgoingRecord, answered: Any) -> None:
    producer.produce(
        record.topic, record.value.encode(), record.key.encode(), headers=record.headers, on_delivery=answered
    )


def _produce_or_wait(producer: Producer, record: OutgoingRecord, answered: Any) -> None:
    """Produce; while the queue of the client is full, wait for answers."""
    while True:
        try:
            _produce(producer, record, answered)
        except BufferError:
            producer.poll(_POLL)
        else:
            producer.poll(0)
            return
