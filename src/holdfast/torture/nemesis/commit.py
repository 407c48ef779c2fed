"""Connections cut inside COMMIT: before the server has it, or after it has done it and before the reply arrives."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.plan import Fault
from holdfast.torture.proxy import When
from holdfast.torture.stage import Stage

_PATIENCE = 10.0  # seconds


class Commit:
    """Cuts the link that sends the next COMMIT."""

    kind: ClassVar = Fault.COMMIT
    at_once: ClassVar = 1

    def why_not(self, stage: Stage) -> str | None:
        """Needs a network."""
        return "SQLite has no connections to cut" if stage.proxy is None else None

    async def strike(self, stage: Stage, chance: random.Random) -> bool:
        """Arm the proxy, and wait until it has cut."""
        proxy = stage.proxy
        if proxy is None:
            return False
        when: When = chance.choice(("before", "after"))
        with stage.log.fault(self.kind, "link", f"{when} the server has it"):
            proxy.arm(when)
            was_cut = await asyncio.to_thread(proxy.cut_within, _PATIENCE)
            proxy.disarm()
        return was_cut
