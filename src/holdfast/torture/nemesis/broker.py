"""The broker that keeps the events dies, or is stopped, stays down for a while, and is restarted; the store stays."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from holdfast.testing.kafka_server import KafkaServer
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.nemesis.restart import restarted
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_LONGEST = 5.0  # seconds down
_DOWN = threading.Lock()
"""Held while the broker is down: what is down cannot be taken down."""


class BrokerFault(FaultInjector):
    """Ends the broker, and starts it again."""

    @abstractmethod
    def way(self, broker: KafkaServer) -> Callable[[], None]:
        """Return the call that ends it."""

    def why_not(self, run: RunContext) -> str | None:
        """Only a broker that the run itself started is taken down."""
        if run.target.events is None:
            return "the events are in the store"
        return "the broker is not the run's own (use --events kafka)" if run.broker is None else None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Take the broker down, and start it again."""
        broker = run.broker
        if broker is None or not _DOWN.acquire(blocking=False):
            return False
        try:
            with run.log.fault(self.kind, "broker"):
                async with restarted(self.way(broker), broker.start):
                    await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the duration of the outage
        finally:
            _DOWN.release()
        return True


class KillBroker(BrokerFault):
    """Kills it, as a crash does."""

    kind: ClassVar = Fault.BROKER

    def way(self, broker: KafkaServer) -> Callable[[], None]:  # noqa: D102 - the base class states the contracts
        return broker.kill


class StopBroker(BrokerFault):
    """Stops it in order, as an upgrade does."""

    kind: ClassVar = Fault.BROKER_STOP

    def way(self, broker: KafkaServer) -> Callable[[], None]:  # noqa: D102
        return broker.stop
