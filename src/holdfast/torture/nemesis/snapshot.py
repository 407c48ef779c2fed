"""A snapshot held open, as by a backup or an idle session: nothing visible to it may be vacuumed."""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar

from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_SHARE = 0.3  # of the fault phase, at most


class HoldSnapshot(FaultInjector):
    """Holds a snapshot of the store open."""

    kind: ClassVar = Fault.SNAPSHOT

    def why_not(self, run: RunContext) -> str | None:
        """Needs a store with snapshots."""
        return None if run.target.has_snapshots else "the store has no snapshots"

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Hold it for a while; a server that dies in the meantime ends it."""
        seconds = run.plan.profile.seconds * _SHARE * chance.random()
        with run.log.fault(self.kind, "store", f"for {seconds:.1f} s"):
            return await asyncio.to_thread(_hold, run, seconds)


def _hold(run: RunContext, seconds: float) -> bool:
    """Hold a snapshot; return whether it was opened, even if another fault ended it early."""
    is_held = False
    try:
        with run.target.held_snapshot():
            is_held = True
            run.log.over.wait(seconds)
    except Exception as error:  # noqa: BLE001 - of either driver: another fault may end the session
        run.log.show(f"the snapshot {'was ended' if is_held else 'could not be opened'}: {type(error).__name__}")
    return is_held
