"""Events in Kafka: next to a SQL store (`events=`), copied from one (`app.relay`), or without one (`streams=`)."""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import confluent_kafka as confluent_kafka
except ModuleNotFoundError as error:
    message = "Kafka needs the package confluent-kafka: pip install 'holdfast[kafka]'"
    raise ConfigError(message) from error

from holdfast.backends.kafka.anchored import open_events
from holdfast.backends.kafka.groups.backend import open_streams
from holdfast.backends.kafka.relay import open_relay

__all__ = ["open_events", "open_relay", "open_streams"]
