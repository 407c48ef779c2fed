"""The server dies, stays down for a while, and is restarted."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext
from holdfast.torture.server import OwnServer

_LONGEST = 3.0  # seconds down


class RestartServer:
    """Kills every process of the server, or stops it without a checkpoint, and starts it again."""

    kind: ClassVar = Fault.RESTART
    at_once: ClassVar = 1

    def why_not(self, stage: RunContext) -> str | None:
        """Only a server that the run itself started is restarted."""
        if stage.ground.kind == "sqlite":
            return "SQLite has no server"
        return "the server is not the run's own (use --server postgresql)" if stage.server is None else None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Take the server down, and start it again."""
        server = stage.server
        if server is None:
            return False
        is_killed = chance.random() < 0.5  # noqa: PLR2004 - every other time
        with stage.log.fault(self.kind, "store", "kill -9" if is_killed else "immediate stop", stalls=True):
            going_down = asyncio.ensure_future(asyncio.to_thread(server.kill if is_killed else server.stop))
            try:
                await asyncio.shield(going_down)
                await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the duration of the outage
            finally:
                await uncancellable(_bring_back(server, going_down))
        return True


async def _bring_back(server: OwnServer, going_down: asyncio.Future[None]) -> None:
    """Start the server as soon as it is down: one thread must not start it while another still kills it."""
    await asyncio.wait({going_down})
    await asyncio.to_thread(server.start)
    going_down.result()
