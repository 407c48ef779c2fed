"""The server dies, or is stopped, stays down for a while, and is restarted."""

from __future__ import annotations

import asyncio
import random
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext
from holdfast.torture.server import RunServer

_LONGEST = 3.0  # seconds down
_DOWN = threading.Lock()
"""Held while the server is down: what is down cannot be taken down."""


class ServerFault(FaultInjector):
    """Ends the server, and starts it again."""

    @abstractmethod
    def way(self, server: RunServer) -> tuple[Callable[[], None], str]:
        """Return the call that ends it, and what that is."""

    def why_not(self, run: RunContext) -> str | None:
        """Only a server that the run itself started is restarted."""
        if not run.target.has_server:
            return "the store has no server"
        return "the server is not the run's own (use --server)" if run.server is None else None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Take the server down, and start it again."""
        server = run.server
        if server is None or not _DOWN.acquire(blocking=False):
            return False
        try:
            end, what = self.way(server)
            with run.log.fault(self.kind, "store", what, stalls=True):
                async with restarted(end, server.start):
                    await asyncio.sleep(_LONGEST * chance.random() ** 2)  # the duration of the outage
        finally:
            _DOWN.release()
        return True


class KillServer(ServerFault):
    """Kills every process of it, as a crash does."""

    kind: ClassVar = Fault.RESTART

    def way(self, server: RunServer) -> tuple[Callable[[], None], str]:  # noqa: D102 - the base class states the contracts
        return server.kill, "kill -9"


class StopServer(ServerFault):
    """Stops it, as an upgrade does."""

    kind: ClassVar = Fault.SERVER_STOP

    def way(self, server: RunServer) -> tuple[Callable[[], None], str]:  # noqa: D102
        return server.stop, server.way_to_stop


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
