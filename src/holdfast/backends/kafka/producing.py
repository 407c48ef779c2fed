"""Appends events: one by the idempotent producer, several in a transaction, so all or none.

The producer removes repeats of its own requests. It cannot recognise an event that the caller appends again: a call
without an answer raises `OutcomeUnknown`, and a repeat may write the event twice, under the same id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import uuid4

from confluent_kafka import KafkaException, Producer

from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import PRODUCER_SETTINGS, Delivery, OutgoingRecord, WrittenAt, produce
from holdfast.backends.kafka.transactions import TransactionalProducer
from holdfast.errors import StoreUnavailable

_POLL: Final = 0.1


class KafkaAppender:
    """The producers of one process."""

    def __init__(self, location: KafkaLocation, health: ClientHealth) -> None:
        self._location = location
        self._health = health
        self._single: Producer | None = None
        self._transactional: TransactionalProducer | None = None
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
        delivery = Delivery(1, lambda: loop.call_soon_threadsafe(answered.set))
        doing = f"append to {record.topic}"
        try:
            produce(self._polled(), record, delivery.callback(0))
        except KafkaException as error:
            raise mapped(error_of(error), doing, self._health) from error
        except BufferError:
            raise StoreUnavailable(f"{doing}: too many events wait for an answer of the brokers") from None
        await answered.wait()
        if delivery.error is not None:
            raise mapped(delivery.error, doing, self._health)
        self._health.answered()
        return delivery.result()[0]

    def _polled(self) -> Producer:
        """Return the producer of single events, whose answers a thread receives."""
        if self._single is None:
            with self._making:
                if self._single is None:
                    producer = Producer(self._location.client(self._health.on_error) | PRODUCER_SETTINGS)
                    self._poller = threading.Thread(
                        target=self._poll, args=(producer,), name="holdfast-kafka-producer", daemon=True
                    )
                    self._poller.start()
                    self._single = producer
        return self._single

    def _poll(self, producer: Producer) -> None:
        while not self._closed.is_set():
            producer.poll(_POLL)
        producer.flush(1)

    def _append_all(self, records: Sequence[OutgoingRecord]) -> list[WrittenAt]:
        """Write records in a transaction."""
        doing = f"append {len(records)} events to {', '.join(sorted({record.topic for record in records}))}"
        if self._transactional is None or self._transactional.is_broken:
            own = f"holdfast-append-{uuid4()}"
            self._transactional = TransactionalProducer(self._location, self._health, own, doing)
        return self._transactional.write(records, doing)

    def close(self) -> None:
        """Send what is waiting, and end."""
        self._closed.set()
        self._transactions.shutdown(wait=False, cancel_futures=True)
        if self._poller is not None:
            self._poller.join(2)
