"""Settings that a URL passes on to the client library, checked before the first call needs them."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

from holdfast.backends.kafka.error_map import ClientHealth, error_of
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.outgoing import PRODUCER_SETTINGS, transactional_settings
from holdfast.backends.kafka.reading import GROUP_PROTOCOL, READER_SETTINGS
from holdfast.errors import ConfigError


def checked_location(url: str, *, has_members: bool = False) -> KafkaLocation:
    """Return the location; raises `ConfigError` if a client that is made from it would refuse its settings.

    `has_members`: consumers are to join groups. Each client ends before it has connected.
    """
    location = KafkaLocation.parse(url)
    if not location.passed_on:
        return location
    common = location.client(ClientHealth(location.url).on_error)
    members = GROUP_PROTOCOL if has_members else {}
    try:
        Producer(PRODUCER_SETTINGS | common)
        Producer(common | transactional_settings(location, "holdfast"))
        Consumer(READER_SETTINGS | common | {"group.id": "holdfast"} | members).close()
    except KafkaException as error:
        raise ConfigError(
            f"the Kafka client refuses the settings of the URL: {error_of(error).str()}. Correct or remove "
            f"{', '.join(location.passed_on)}"
        ) from error
    return location
