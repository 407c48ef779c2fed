"""The server dies, stays down for a while, and comes back."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.plan import Fault
from holdfast.torture.stage import Stage

_LONGEST = 3.0  # seconds down


class Restart:
    """Kills every process of the server, or stops it without a checkpoint, and starts it again."""

    kind: ClassVar = Fault.RESTART
    at_once: ClassVar = 1

    def why_not(self, stage: Stage) -> str | None:
        """Only a server that the run has started itself is ever restarted."""
        if stage.ground.kind == "sqlite":
            return "SQLite has no server"
        return "the server is not the run's own (use --server postgresql)" if stage.server is None else None

    async def strike(self, stage: Stage, chance: random.Random) -> bool:
        """Take it down, and bring it back."""
        server = stage.server
        if server is None:
            return False
        is_killed = chance.random() < 0.5  # noqa: PLR2004 - every other time
        with stage.log.fault(self.kind, "store", "kill -9" if is_killed else "immediate stop", stalls=True):
            await asyncio.to_thread(server.kill if is_killed else server.stop)
            await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the length of the outage
            await asyncio.to_thread(server.start)
        return True
