"""Broken connections: reset, closed, half open, black hole."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_WAYS = ("one", "all", "fin", "half", "hole")
_WEIGHTS = (60, 20, 10, 5, 5)
_LONGEST_HOLE = 1.0  # leases


class Cut(FaultInjector):
    """Breaks connections in the proxy."""

    kind: ClassVar = Fault.CUT

    def why_not(self, run: RunContext) -> str | None:
        """Needs a network."""
        return "the store has no connections to cut" if run.proxy is None else None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Break one connection, or all."""
        proxy = run.proxy
        if proxy is None or not proxy.links:
            return False
        (way,) = chance.choices(_WAYS, _WEIGHTS)
        with run.log.fault(self.kind, "link", way, stalls=way in {"half", "hole"}):
            match way:
                case "one":
                    await asyncio.to_thread(proxy.cut_one, chance)
                case "all":
                    await asyncio.to_thread(proxy.cut)
                case "fin":
                    await asyncio.to_thread(proxy.fin)
                case "half":
                    await asyncio.to_thread(proxy.half)
                    await asyncio.sleep(run.plan.lease * chance.random())  # the duration of the fault
                    await asyncio.to_thread(proxy.cut)
                case _:
                    await asyncio.to_thread(proxy.hole)
                    await asyncio.sleep(run.plan.lease * _LONGEST_HOLE * chance.random())
                    proxy.heal()
                    await asyncio.to_thread(proxy.cut)
        return True
