"""Appends events: one by the idempotent producer, several in a transaction, so all or none.

The producer removes repeats of its own requests. It cannot recognise an event that the caller appends again: a call
without an answer raises `OutcomeUnknown`, and a repeat may write the event twice, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Producer

from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped, mapped_append
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import PRODUCER_SETTINGS, Delivery, OutgoingRecord, WrittenAt, produce
from holdfast.backends.kafka.transactions import TransactionalProducer
from holdfast.errors import LeaseLost, StoreUnavailable

_logger = logging.getLogger("holdfast.kafka")
_POLL: Final = 0.1
# By default the client keeps a record for 5 ms, in case more follow. A caller that waits for each would lose them each
# time; those of concurrent callers travel together anyway, while a request is on its way.
_SINGLE: Final = {"linger.ms": 0}


class KafkaAppender:
    """The producers of one process."""

    def __init__(self, location: KafkaLocation, health: ClientHealth) -> None:
        self._location = location
        self._health = health
        self._single: Producer | None = None
        self._transactional: TransactionalProducer | None = None
        self._failure: KafkaError | None = None
        """Why the last producer of single events has failed."""
        self._handing = threading.Lock()
        self._closed = threading.Event()
        self._poller: threading.Thread | None = None
        # One thread: a producer has one transaction at a time.
        self._transactions = ThreadPoolExecutor(1, thread_name_prefix="holdfast-kafka-append")

    async def append(self, records: Sequence[OutgoingRecord]) -> list[WrittenAt]:
        """Write records, all or none; return their places, in order."""
        if len(records) == 1:
            return [await self._append_one(records[0])]
        doing = f"append {len(records)} events to {', '.join(sorted({record.topic for record in records}))}"
        try:
            return await asyncio.wrap_future(self._transactions.submit(self._append_all, records, doing))
        except RuntimeError as error:  # it accepts no more calls
            raise _closed(doing) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and (task is None or not task.cancelling()):  # not the caller: `close`
                raise _closed(doing) from None
            raise

    async def _append_one(self, record: OutgoingRecord) -> WrittenAt:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop of the caller was closed: no call waits any more
                loop.call_soon_threadsafe(answered.set)

        delivery = Delivery(1, wake)
        doing = f"append to {record.topic}"
        try:
            self._produce(record, delivery.callback(0), doing)
        except KafkaException as error:
            raise mapped(error_of(error), doing, self._health) from error
        except BufferError:
            raise StoreUnavailable(f"{doing}: too many events wait for an answer of the brokers") from None
        await answered.wait()
        if delivery.error is not None:
            is_unsent = delivery.error.code() == KafkaError._PURGE_QUEUE  # noqa: SLF001
            if is_unsent and self._closed.is_set():
                raise _closed(doing)
            cause = self._failure if is_unsent and self._failure is not None else delivery.error
            raise (mapped if is_unsent else mapped_append)(cause, doing, self._health)
        self._health.answered()
        return delivery.result()[0]

    def _produce(self, record: OutgoingRecord, answered: Any, doing: str) -> None:
        """Hand a record to the producer of single events, whose answers a thread receives."""
        with self._handing:
            if self._closed.is_set():
                raise _closed(doing)
            producer = self._single
            if producer is None:
                settings = PRODUCER_SETTINGS | _SINGLE | self._location.client(self._health.on_error)
                producer = self._single = Producer(settings)
                self._poller = threading.Thread(
                    target=self._poll, args=(producer,), name="holdfast-kafka-producer", daemon=True
                )
                self._poller.start()
            produce(producer.produce, record, answered)

    def _poll(self, producer: Producer) -> None:
        """Receive answers until the end, or until the producer has failed; afterwards no call is left waiting."""
        failure: KafkaError | None = None
        try:
            while not self._closed.is_set():
                producer.poll(_POLL)
            producer.flush(1)
        except (KafkaException, SystemError) as raised:  # as after its sequence of records was broken: it sends no more
            failure = error_of(raised) if isinstance(raised, KafkaException) else None
            _logger.warning(
                "a producer has failed, and the next append makes another: %s", failure.str() if failure else raised
            )
        finally:
            with self._handing:
                self._failure = failure
                if self._single is producer:
                    self._single = None
            _answer_waiting(producer)

    def _append_all(self, records: Sequence[OutgoingRecord], doing: str) -> list[WrittenAt]:
        """Write records in a transaction."""
        if self._transactional is None or self._transactional.is_broken:
            own = f"holdfast-append-{uuid4()}"
            self._transactional = TransactionalProducer(self._location, self._health, own, doing)
        try:
            return self._transactional.write(records, doing)
        except LeaseLost as error:  # no other process has this id: the broker ended the transaction at its time limit
            raise StoreUnavailable(f"{error}; nothing was written") from error

    def close(self) -> None:
        """Send what is waiting, for a second; then all calls are answered, those in a transaction when that ends."""
        self._closed.set()
        self._transactions.shutdown(wait=False, cancel_futures=True)
        if self._poller is not None:
            self._poller.join(2)


def _closed(doing: str) -> StoreUnavailable:
    return StoreUnavailable(f"{doing}: the app was closed before it was sent; nothing was written")


def _answer_waiting(producer: Producer) -> None:
    """Answer the calls whose records a producer will never send, or has sent without an answer."""
    producer.purge()
    while len(producer):
        with suppress(KafkaException, SystemError):  # the failure again
            producer.poll(_POLL)
