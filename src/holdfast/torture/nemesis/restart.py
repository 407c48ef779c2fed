"""The server dies, stays down for a while, and is restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_LONGEST = 3.0  # seconds down


class RestartServer(FaultInjector):
    """Kills every process of the server, or stops it without a checkpoint, and starts it again."""

    kind: ClassVar = Fault.RESTART

    def why_not(self, run: RunContext) -> str | None:
        """Only a server that the run itself started is restarted."""
        if not run.target.has_server:
            return "the store has no server"
        return "the server is not the run's own (use --server)" if run.server is None else None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Take the server down, and start it again."""
        server = run.server
        if server is None:
            return False
        is_killed = chance.random() < 0.5  # noqa: PLR2004 - every other time
        with run.log.fault(self.kind, "store", "kill -9" if is_killed else "immediate stop", stalls=True):
            async with restarted(server.kill if is_killed else server.stop, server.start):
                await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the duration of the outage
        return True


@asynccontextmanager
async def restarted(end: Callable[[], None], start: Callable[[], None]) -> AsyncGenerator[None]:
    """End a server, run the block while it is down, and start it again, however the block ends."""
    going_down = asyncio.ensure_future(asyncio.to_thread(end))
    try:
        await asyncio.shield(going_down)
        yield
    finally:
        await uncancellable(_restart(start, going_down))


async def _restart(start: Callable[[], None], going_down: asyncio.Future[None]) -> None:
    """Start the server as soon as it is down: one thread must not start it while another still kills it."""
    await asyncio.wait({going_down})
    await asyncio.to_thread(start)
    going_down.result()
