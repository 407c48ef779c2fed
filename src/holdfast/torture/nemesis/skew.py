"""Workers with a wrong wall clock: only the store's clock may decide."""

from __future__ import annotations

import random
from typing import ClassVar

from holdfast.torture.fleet import Armed
from holdfast.torture.nemesis.armed_faults import started_with
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_MOST = 600.0  # seconds


class Skew(FaultInjector):
    """Starts a worker whose clock is off by minutes."""

    kind: ClassVar = Fault.SKEW

    def why_not(self, run: RunContext) -> str | None:
        """Without a server the machine's clock is the store's: another clock would mean another machine."""
        if not run.target.has_server:
            return "the clock of the machine is the store's own, the same for every process"
        return None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Start the next worker with a wrong clock; it keeps it."""
        armed = Armed(skew=round(chance.choice((-1, 1)) * chance.uniform(1, _MOST), 1))
        seat = await started_with(armed, run, chance)
        if seat is None:
            return False
        with run.log.fault(self.kind, seat.target, f"{armed.skew:+.1f} s"):
            return True
