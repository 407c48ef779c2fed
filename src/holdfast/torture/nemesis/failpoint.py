"""kill -9 at a named point: right after a claim, before and after an effect, around a commit, around a flush."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import ClassVar

from holdfast.runtime.failpoint import IN_TRANSACTIONS
from holdfast.torture.fleet import Armed
from holdfast.torture.nemesis.armed_faults import started_with
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_LATEST = 25  # how often a point is passed before
_PER_JOBS = 1000
_TIMEOUT = 20.0  # seconds on an idle machine


class Failpoint(FaultInjector):
    """Kills a worker at a failpoint."""

    kind: ClassVar = Fault.FAILPOINT

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Arm a failpoint in the next worker, and wait for its death."""
        latest = max(1, min(_LATEST, run.plan.profile.jobs // _PER_JOBS))
        has_effects = run.target.capabilities.commits_effects
        reached = [point for point in run.fleet.failpoints if has_effects or point not in IN_TRANSACTIONS]
        armed = Armed(failpoints=f"{chance.choice(reached)}=kill@{chance.randint(1, latest)}")
        seat = await started_with(armed, run, chance)
        if seat is None:
            return False
        with run.log.fault(self.kind, seat.target, armed.failpoints):
            process = seat.process
            try:
                async with asyncio.timeout(run.plan.scaled(_TIMEOUT)):
                    await seat.ended.wait()
            except TimeoutError:
                return False
        return process is not None and process.returncode == -signal.SIGKILL
