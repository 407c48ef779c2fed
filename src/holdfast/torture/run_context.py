"""What the nemesis has access to."""

from __future__ import annotations

import msgspec

from holdfast.testing.kafka_server import KafkaServer
from holdfast.torture.fleet import Fleet
from holdfast.torture.log import Log
from holdfast.torture.plan import RunPlan
from holdfast.torture.proxy import Proxy
from holdfast.torture.server import RunServer
from holdfast.torture.target import Target


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """A run in progress. `proxy` is set if the store is reached over a network, `server` if the run started it.

    `broker` is set if the run has started a broker of Kafka for its events.
    """

    plan: RunPlan
    log: Log
    fleet: Fleet
    target: Target
    proxy: Proxy | None = None
    server: RunServer | None = None
    broker: KafkaServer | None = None
