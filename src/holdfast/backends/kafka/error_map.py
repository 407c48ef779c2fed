"""Errors of the Kafka client as errors of Holdfast."""

from __future__ import annotations

import logging
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import (
    CategoryNotFound,
    ConfigError,
    HoldfastError,
    LeaseLost,
    OutcomeUnknown,
    PayloadError,
    StoreUnavailable,
)

_logger = logging.getLogger("holdfast.kafka")

_LOGIN_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the client's own codes have such names
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
_DENIED: Final = _LOGIN_REFUSED | frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
# For an append: the broker may have written the record, and only its answer is missing.
_UNKNOWN_OUTCOME: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class ClientHealth:
    """What the client reports on its own: logged once for each change, not once for each attempt to connect."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_down = False
        self.refusal: KafkaError | None = None
        """Why brokers refuse the login of this client, since their last answer: calls only see that none answers."""
        self._refused_at = 0.0

    @property
    def is_down(self) -> bool:
        """Whether no broker could be reached at the client's last attempt."""
        return self._is_down

    def on_error(self, error: KafkaError) -> None:
        """Note an error; the client calls this in any of its threads."""
        if error.code() in _LOGIN_REFUSED or _is_untrusted(error):
            self.refusal, self._refused_at = error, time.monotonic()
        is_down = error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
        if is_down and not self._is_down:
            self._is_down = True
            _logger.warning("%s: no broker can be reached, reconnecting: %s", self._url, error.str())

    def refused_since(self, began: float) -> KafkaError | None:
        """Return why brokers have refused the login since an instant of the monotonic clock."""
        return self.refusal if self._refused_at >= began else None

    def answered(self) -> None:
        """Note that a broker has answered, after a login."""
        self.refusal = None
        if self._is_down:
            self._is_down = False
            _logger.info("%s: a broker can be reached again", self._url)


def _is_untrusted(error: KafkaError) -> bool:
    """Return whether the certificate of a broker is not accepted; a handshake that is cut off has the same code."""
    return error.code() == KafkaError._SSL and "certificate" in error.str()  # noqa: SLF001


def error_of(exception: KafkaException) -> KafkaError:
    """Return the client's error in its exception."""
    error: KafkaError = exception.args[0]
    return error


def mapped(error: KafkaError, doing: str, health: ClientHealth) -> HoldfastError:
    """Return the error of Holdfast for one of the client; `doing` says what failed, as in "read shop.orders"."""
    code, text = error.code(), f"{doing}: {error.str()} ({error.name()})"
    denial = error if code in _DENIED else health.refusal
    if denial is not None:
        if _is_untrusted(denial):
            return ConfigError(f"{doing}: TLS failed, check tls= and ca= in the URL: {denial.str()}")
        return ConfigError(f"{doing}: the broker denies it, check user, password and rights: {denial.str()}")
    if code in _UNKNOWN_TOPIC:
        return CategoryNotFound(f"{text}; app.category(…), the first append or the start of a relay creates the topic")
    if code in _TOO_LARGE:
        return PayloadError(f"{text}; the limits are max.message.bytes (topic) and message.max.bytes (client)")
    if code in _FENCED:
        return LeaseLost(text)
    return StoreUnavailable(text)


def mapped_append(error: KafkaError, doing: str, health: ClientHealth) -> HoldfastError:
    """Return the error of an append outside a transaction, whose outcome may be unknown.

    It stays unknown when brokers refuse the login by now: the record may have been on its way before.
    """
    if error.code() not in _UNKNOWN_OUTCOME:
        return mapped(error, doing, health)
    cause = "" if health.refusal is None else f"; brokers refuse the login now: {health.refusal.str()}"
    text = f"{doing}: {error.str()} ({error.name()}); it may have been written{cause}"
    return OutcomeUnknown(text, is_repeatable=False)
