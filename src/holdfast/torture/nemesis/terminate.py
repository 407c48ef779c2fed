"""Sessions that the server ends: one, some, all."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.errors import StoreUnavailable
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext


class Terminate:
    """Has the server terminate sessions of workers and producers."""

    kind: ClassVar = Fault.TERMINATE
    at_once: ClassVar = 1

    def why_not(self, stage: RunContext) -> str | None:
        """Needs a server."""
        return None if stage.target.has_server else "the store has no server"

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Terminate."""
        target = stage.target
        try:
            pids = await asyncio.to_thread(target.sessions)
            if not pids:
                return False
            some = chance.choices((1, max(1, len(pids) // 2), len(pids)), (70, 20, 10))[0]
            with stage.log.fault(self.kind, "sessions", f"{some} of {len(pids)}"):
                return await asyncio.to_thread(target.terminate, chance.sample(pids, some)) > 0
        except StoreUnavailable:  # the server is down, by another fault
            return False
