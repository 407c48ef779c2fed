"""Connections cut inside COMMIT or at an autocommitted statement: its request or its reply is lost."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.proxy import When
from holdfast.torture.run_context import RunContext

_TIMEOUT = 10.0  # seconds on an idle machine


class CutAtCommit(FaultInjector):
    """Cuts the connection that sends the next COMMIT."""

    kind: ClassVar[Fault] = Fault.COMMIT
    alone: ClassVar[bool] = False
    """Whether to cut only at an autocommitted statement."""

    def why_not(self, run: RunContext) -> str | None:
        """Needs a network on which statements can be read."""
        if run.proxy is None:
            return "the store has no connections to cut"
        if run.target.is_encrypted():
            return "the connection is encrypted (TLS), so that its statements cannot be seen (use sslmode=disable)"
        if not (self.alone or run.proxy.wire.commit):
            return "the store has no COMMIT: each of its writes is one request, which is cut at as a statement"
        return None

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Arm the proxy, and wait until it has cut."""
        proxy = run.proxy
        if proxy is None:
            return False
        when: When = chance.choice(("before", "after"))
        with run.log.fault(self.kind, "link", f"{when} the server received it"):
            proxy.arm(when, alone=self.alone)
            seconds = run.plan.scaled(_TIMEOUT)
            was_cut = await asyncio.to_thread(proxy.cut_within, seconds, alone=self.alone)
            proxy.disarm(alone=self.alone)
        return was_cut


class CutAtStatement(CutAtCommit):
    """Cuts the connection that sends the next autocommitted write, such as a claim, a completion or an extension."""

    kind: ClassVar[Fault] = Fault.STATEMENT
    alone: ClassVar[bool] = True
