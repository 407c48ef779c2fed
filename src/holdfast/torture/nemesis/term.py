"""SIGTERM, as in a rolling restart: a worker releases what it has not started and finishes what it can."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import ClassVar

from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_TIMEOUT = 60.0  # seconds on an idle machine


class Term(FaultInjector):
    """Asks a worker to shut down; a supervisor is as often asked to replace its workers one by one."""

    kind: ClassVar = Fault.TERM

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Send the signal, and wait for the exit."""
        seats = run.fleet.running()
        if not seats:
            return False
        seat = chance.choice(seats)
        is_supervised = seat.settings is not None and seat.settings.processes > 1
        if is_supervised and chance.random() < 0.5:  # noqa: PLR2004 - every other time
            with run.log.fault(self.kind, seat.target, "SIGHUP to the supervisor"):
                seat.send(signal.SIGHUP)
            return True
        seat.was_hit = True
        with run.log.fault(self.kind, seat.target, "SIGTERM", asks=True):
            ended = seat.ended
            seat.ask()
            async with asyncio.timeout(run.plan.scaled(_TIMEOUT)):
                await ended.wait()
        return True
