"""SIGTERM, as in a rolling restart: a worker releases what it has not started and finishes what it can."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import ClassVar

from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_PATIENCE = 60.0  # seconds on an idle machine


class Term:
    """Asks a worker to shut down; a supervisor is as often asked to replace its workers one by one."""

    kind: ClassVar = Fault.TERM
    at_once: ClassVar = 1

    def why_not(self, stage: RunContext) -> str | None:  # noqa: ARG002 - as the protocol says
        """Nothing stands against it, anywhere."""
        return None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Send the signal, and wait for the exit."""
        seats = stage.fleet.running()
        if not seats:
            return False
        seat = chance.choice(seats)
        is_supervised = seat.settings is not None and seat.settings.processes > 1
        if is_supervised and chance.random() < 0.5:  # noqa: PLR2004 - every other time
            with stage.log.fault(self.kind, seat.target, "SIGHUP to the supervisor"):
                seat.send(signal.SIGHUP)
            return True
        seat.was_hit = True
        with stage.log.fault(self.kind, seat.target, "SIGTERM", asks=True):
            ended = seat.ended
            seat.ask()
            async with asyncio.timeout(stage.plan.scaled(_PATIENCE)):
                await ended.wait()
        return True
