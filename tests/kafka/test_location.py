"""The URL of Kafka."""

from __future__ import annotations

import pytest

from holdfast import App, ConfigError
from holdfast.backends.kafka.location import KafkaLocation


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
        ("kafka://host/?sasl=plain", "sasl=plain: pass one of .* with a user"),
        ("kafka://u:p@host/?sasl=kerberos", "sasl=kerberos"),
        ("kafka://host/?rd.enable.auto.commit=true", "Holdfast sets enable.auto.commit itself"),
        ("kafka://host/?acks=1", "unknown settings in the Kafka URL: acks"),
    ],
)
def test_an_invalid_url_is_refused_with_the_remedy(url: str, said: str):
    with pytest.raises(ConfigError, match=said):
        App("sqlite://", events=url)


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
