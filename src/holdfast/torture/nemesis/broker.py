"""The broker that keeps the events dies, stays down for a while, and is restarted; the store stays."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.nemesis.restart import restarted
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_LONGEST = 5.0  # seconds down


class KillBroker(FaultInjector):
    """Kills the broker, or stops it in order, and starts it again."""

    kind: ClassVar = Fault.BROKER

    def why_not(self, run: RunContext) -> str | None:
        """Only a broker that the run itself started is killed."""
        if run.target.events is None:
            return "the events are in the store"
        return "the broker is not the run's own (use --events kafka)" if run.broker is None else None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Take the broker down, and start it again."""
        broker = run.broker
        if broker is None:
            return False
        is_killed = chance.random() < 0.75  # noqa: PLR2004 - three times in four
        with run.log.fault(self.kind, "broker", "kill -9" if is_killed else "stop"):
            async with restarted(broker.kill if is_killed else broker.stop, broker.start):
                await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the duration of the outage
        return True
