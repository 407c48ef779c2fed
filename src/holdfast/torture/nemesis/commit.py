"""Connections cut inside COMMIT: before the server receives it, or after it is done and before the reply arrives."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.plan import Fault
from holdfast.torture.proxy import COMMIT, When
from holdfast.torture.run_context import RunContext

_PATIENCE = 10.0  # seconds on an idle machine


class CutAtCommit:
    """Cuts the connection that sends the next COMMIT."""

    kind: ClassVar[Fault] = Fault.COMMIT
    at_once: ClassVar = 1
    pattern: ClassVar[str] = COMMIT
    alone: ClassVar[bool] = False
    """Whether to cut only at an autocommitted statement."""

    def why_not(self, stage: RunContext) -> str | None:
        """Needs a network on which statements can be read."""
        if stage.proxy is None:
            return "SQLite has no connections to cut"
        if stage.ground.is_encrypted():
            return "the connection is encrypted (TLS), so that its statements cannot be seen (use sslmode=disable)"
        return None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Arm the proxy, and wait until it has cut."""
        proxy = stage.proxy
        if proxy is None:
            return False
        when: When = chance.choice(("before", "after"))
        with stage.log.fault(self.kind, "link", f"{when} the server received it"):
            proxy.arm(when, self.pattern, alone=self.alone)
            seconds = stage.plan.scaled(_PATIENCE)
            was_cut = await asyncio.to_thread(proxy.cut_within, seconds, alone=self.alone)
            proxy.disarm(alone=self.alone)
        return was_cut
