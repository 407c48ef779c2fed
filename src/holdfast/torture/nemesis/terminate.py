"""Sessions terminated by the server: one, some, all."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.errors import StoreUnavailable
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext


class Terminate(FaultInjector):
    """Has the server terminate sessions of workers and producers."""

    kind: ClassVar = Fault.TERMINATE

    def why_not(self, run: RunContext) -> str | None:
        """Needs a server."""
        return None if run.target.has_server else "the store has no server"

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Terminate sessions."""
        target = run.target
        try:
            pids = await asyncio.to_thread(target.sessions)
            if not pids:
                return False
            some = chance.choices((1, max(1, len(pids) // 2), len(pids)), (70, 20, 10))[0]
            with run.log.fault(self.kind, "sessions", f"{some} of {len(pids)}"):
                return await asyncio.to_thread(target.terminate, chance.sample(pids, some)) > 0
        except StoreUnavailable:  # another fault has the server down
            return False
