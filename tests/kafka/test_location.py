"""The URL of Kafka."""

from __future__ import annotations

import pytest

from holdfast import App, ConfigError
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import transactional_settings
from holdfast.backends.kafka.settings_check import checked_location


def test_a_url_names_brokers_a_prefix_and_how_to_log_in():
    found = KafkaLocation.parse("kafka://me:s%40crt@one:9000,two/shop.?tls=1&sasl=scram-sha-512&rd.linger.ms=5")

    assert (found.servers, found.topic("orders")) == ("one:9000,two:9092", "shop.orders")
    assert found.settings == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "s@crt",
        "security.protocol": "sasl_ssl",
        "linger.ms": "5",
    }
    assert found.url == "kafka://me:***@one:9000,two:9092/shop."


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka:///orders", "needs a host"),
        ("kafka://host/shop/eu", "'shop/eu' is not a valid prefix of Kafka topics"),
        (f"kafka://host/{'x' * 250}", "is not a valid prefix"),
        ("kafka://host/?sasl=plain", "sasl=plain: pass one of .* with a user"),
        ("kafka://u:p@host/?sasl=kerberos", "sasl=kerberos"),
        ("kafka://host/?rd.enable.auto.commit=true", "Holdfast sets enable.auto.commit itself"),
        ("kafka://host/?acks=1", "unknown settings in the Kafka URL: acks"),
        ("kafka://host/?rd.no.such=1", 'No such configuration property: "no.such". Correct or remove rd.no.such'),
        ("kafka://host/?rd.delivery.timeout.ms=soon", "Correct or remove rd.delivery.timeout.ms"),
        (
            "kafka://host/?rd.delivery.timeout.ms=40000&rd.transaction.timeout.ms=30000",
            "Correct or remove rd.delivery.timeout.ms, rd.transaction.timeout.ms",
        ),
        ("kafka://host/?rd.fetch.max.bytes=1", "Correct or remove rd.fetch.max.bytes"),
        ("kafka://host/?tls=1&ca=/no/such/file", "Correct or remove ca"),
    ],
)
def test_an_invalid_url_is_refused_with_the_remedy(url: str, said: str):
    with pytest.raises(ConfigError, match=said):
        App("sqlite://", events=url)


def test_settings_of_groups_are_checked_where_consumers_join_them():
    url = "kafka://host/?rd.session.timeout.ms=10000"

    App("sqlite://", events=url)
    with pytest.raises(ConfigError, match=r"defined broker side. Correct or remove rd.session.timeout.ms"):
        App(streams=url)


@pytest.mark.parametrize(
    ("query", "delivery", "transaction"),
    [
        ("", 20_000, 30_000),
        ("rd.delivery.timeout.ms=60000", 60_000, 70_000),
        ("rd.message.timeout.ms=60000", 60_000, 70_000),
        ("rd.transaction.timeout.ms=5000", 5_000, 5_000),
        ("rd.transaction.timeout.ms=90000", 20_000, 90_000),
        ("rd.delivery.timeout.ms=4000&rd.transaction.timeout.ms=6000", 4_000, 6_000),
    ],
)
def test_the_time_limits_of_the_url_hold_for_transactions_too(query: str, delivery: int, transaction: int):
    found = transactional_settings(checked_location(f"kafka://host/?{query}"), "one")

    assert int(found["delivery.timeout.ms"]) == delivery
    assert int(found["transaction.timeout.ms"]) == transaction


def test_kafka_needs_a_sql_store_next_to_it():
    with pytest.raises(ConfigError, match=r"kafka://… keeps events, not jobs: .*events='kafka"):
        App("kafka://host/")
    with pytest.raises(ConfigError, match="need a SQL store next to it"):
        App("redis://localhost/0", events="kafka://host/")
    with pytest.raises(ConfigError, match="only Kafka keeps events next to a store"):
        App("sqlite://", events="redis://localhost/0")


def test_the_password_is_shown_nowhere():
    app = App("sqlite://", events="kafka://me:secret@host/")

    assert "secret" not in repr(app) + app.backend.url


@pytest.mark.parametrize(("prefix", "category"), [("shop.", "orders:eu"), ("x" * 200, "o" * 50), ("", "..")])
def test_a_category_whose_topic_would_have_an_invalid_name_is_refused(prefix: str, category: str):
    with pytest.raises(ConfigError, match=f"of category '{category}' is not a valid Kafka topic name"):
        KafkaLocation.parse(f"kafka://host/{prefix}").topic(category)
