"""Workers whose wall clock is wrong: only the store's clock may judge."""

from __future__ import annotations

import random
from typing import ClassVar

from holdfast.torture.fleet import Armed
from holdfast.torture.nemesis.armed_faults import started_with
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_MOST = 600.0  # seconds


class Skew:
    """Starts a worker whose clock is fast or slow by minutes."""

    kind: ClassVar = Fault.SKEW
    at_once: ClassVar = 1

    def why_not(self, stage: RunContext) -> str | None:
        """Without a server the clock of the machine is the store's: a process with another one is elsewhere."""
        if not stage.target.has_server:
            return "the clock of the machine is the store's own, the same for every process"
        return None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Let the next worker start with a wrong clock; it keeps it for life."""
        armed = Armed(skew=round(chance.choice((-1, 1)) * chance.uniform(1, _MOST), 1))
        seat = await started_with(armed, stage, chance)
        if seat is None:
            return False
        with stage.log.fault(self.kind, seat.target, f"{armed.skew:+.1f} s"):
            return True
