"""Sessions terminated by the server: one, some, all."""

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
        return "SQLite has no server" if stage.ground.kind == "sqlite" else None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Terminate sessions."""
        import psycopg

        from holdfast.torture.target.postgres import PostgresGround

        ground = stage.ground
        if not isinstance(ground, PostgresGround):
            return False
        try:
            pids = await asyncio.to_thread(ground.sessions)
            if not pids:
                return False
            some = chance.choices((1, max(1, len(pids) // 2), len(pids)), (70, 20, 10))[0]
            with stage.log.fault(self.kind, "sessions", f"{some} of {len(pids)}"):
                return await asyncio.to_thread(ground.terminate, chance.sample(pids, some)) > 0
        except (psycopg.Error, StoreUnavailable):  # another fault has the server down
            return False
