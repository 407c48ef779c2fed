"""Which error of Holdfast stands for one of the client."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from holdfast import CategoryNotFound, ConfigError, HoldfastError, LeaseLost, OutcomeUnknown, PayloadError
from holdfast.backends.kafka.error_map import ClientHealth, mapped, mapped_append
from holdfast.errors import StoreUnavailable

KINDS: dict[type[HoldfastError], tuple[int, ...]] = {
    ConfigError: (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    CategoryNotFound: (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART),
    PayloadError: (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE),
    LeaseLost: (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED),
    StoreUnavailable: (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._SSL,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ),
}
UNKNOWN = (
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
)


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in KINDS.items() for code in codes])
def test_an_error_of_the_client_has_its_kind(kind: type[HoldfastError], code: int):
    for as_holdfast in (mapped, mapped_append):
        error = as_holdfast(KafkaError(code), "read orders", ClientHealth("kafka://h"))

        assert type(error) is kind
        assert str(error).startswith("read orders: ")


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_append_without_an_answer_may_have_been_written_also_if_the_login_is_refused_by_now(code: int):
    health = ClientHealth("kafka://h")
    error = mapped_append(KafkaError(code), "append to orders", health)
    assert isinstance(error, OutcomeUnknown)
    assert not error.is_repeatable
    assert type(mapped(KafkaError(code), "append to orders", health)) is StoreUnavailable

    health.on_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    error = mapped_append(KafkaError(code), "append to orders", health)
    assert isinstance(error, OutcomeUnknown)
    assert not error.is_repeatable
    assert "it may have been written; brokers refuse the login now: wrong password" in str(error)
