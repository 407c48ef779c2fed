"""Records in a transaction of Kafka, all or none, with the position that they were read from, if there is one.

```text
   init ──▶ begin ──▶ produce … ──▶ (offsets) ──▶ commit      an error before the commit aborts: nothing is visible
```

`init` fences every earlier producer of the same transactional id, and ends the transaction that it left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import (
    Delivery,
    OutgoingRecord,
    WrittenAt,
    delivery_ms,
    produce_all,
    transactional_settings,
)
from holdfast.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreUnavailable

_PAST_DELIVERY: Final = 10.0  # seconds


class GroupOffsets(NamedTuple):
    """Offsets of a consumer group that commit with the records."""

    offsets: list[TopicPartition]
    group: Any


class TransactionalProducer:
    """A producer of one transactional id; used by one thread at a time, and blocking.

    After any failure (`is_broken`) another one must be made: after a record that the broker refused, its sequence
    numbers have a gap, and its next transaction would fail, too.
    """

    def __init__(self, location: KafkaLocation, health: ClientHealth, transactional_id: str, doing: str) -> None:
        self.is_broken = False
        self._health = health
        self._timeout = delivery_ms(location) / 1000 + _PAST_DELIVERY
        settings = location.client(health.on_error) | transactional_settings(location, transactional_id)
        try:
            self._producer = Producer(settings)
            self._producer.init_transactions(self._timeout)
        except KafkaException as failure:
            error = error_of(failure)
            if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigError(
                    f"{doing}: {error.str()}: set rd.transaction.timeout.ms in the URL to at most what "
                    "transaction.max.timeout.ms of the brokers allows, and rd.delivery.timeout.ms to no more"
                ) from failure
            raise mapped(error, doing, health) from failure

    def write(
        self, records: Sequence[OutgoingRecord], doing: str, consumed: GroupOffsets | None = None
    ) -> list[WrittenAt]:
        """Write records in a transaction; return their places, in order.

        Raises `LeaseLost` if another producer of the id has fenced this one, or the broker at the time limit: then
        nothing was written.
        """
        delivery = Delivery(len(records), lambda: None)
        try:
            self._producer.begin_transaction()
            produce_all(self._producer, records, delivery)
            self._producer.flush(self._timeout)
            if delivery.error is None and consumed is not None:
                self._producer.send_offsets_to_transaction(consumed.offsets, consumed.group, self._timeout)
        except KafkaException as error:
            self._abort()
            raise mapped(error_of(error), doing, self._health) from error
        except SystemError as failure:  # the client's way to report a fatal error; only its next call says which
            raise _undone(self._abort(), doing, self._health) from failure
        except BaseException:  # else it would stay open, and fail the next call
            self._abort()
            raise
        if delivery.error is not None or None in delivery.places:
            self._abort()
            raise _undone(delivery.error, doing, self._health)
        self._commit(doing)
        self._health.answered()
        return delivery.result()

    def _abort(self) -> KafkaError | None:
        """Abort: no record becomes visible. Return the error if that fails: then the broker does it, after a time."""
        self.is_broken = True
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as error:
            return error_of(error)
        return None

    def _commit(self, doing: str) -> None:
        try:
            self._producer.commit_transaction(self._timeout)
        except KafkaException as failure:
            error = error_of(failure)
            self.is_broken = True
            if error.txn_requires_abort():
                self._abort()
                raise _undone(error, doing, self._health) from failure
            message = f"{doing}: the commit was not answered: {error.str()}"
            raise OutcomeUnknown(message, is_repeatable=False) from failure


def _undone(error: KafkaError | None, doing: str, health: ClientHealth) -> HoldfastError:
    """Return the error of a transaction that was aborted, so that nothing was written; `LeaseLost` if it was fenced."""
    if error is None:
        return StoreUnavailable(f"{doing}: the brokers did not acknowledge all events in time; none was written")
    return mapped(error, doing, health)
