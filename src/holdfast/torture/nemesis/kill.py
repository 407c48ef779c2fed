"""kill -9: of a worker, of one under a supervisor, of the supervisor, of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from typing import ClassVar

from holdfast.torture.below import below, is_alive
from holdfast.torture.fleet import Seat
from holdfast.torture.history import SUFFIX, process_name
from holdfast.torture.plan import Fault
from holdfast.torture.stage import Stage

_LOOK = 0.01  # seconds
_PATIENCE = 20.0  # on an idle machine


class Kill:
    """Kills processes without a warning."""

    kind: ClassVar = Fault.KILL
    at_once: ClassVar = 2

    def why_not(self, stage: Stage) -> str | None:  # noqa: ARG002 - as the protocol says
        """Nothing stands against it, anywhere."""
        return None

    async def strike(self, stage: Stage, chance: random.Random) -> bool:
        """Kill a worker at a random moment."""
        seats = stage.fleet.running()
        if not seats:
            return False
        seat = chance.choice(seats)
        workers = _below_supervisor(stage, seat)
        if workers and chance.random() < 0.5:  # noqa: PLR2004 - every other time
            return await self._kill_one(stage, seat, chance.choice(workers))
        pids = [seat.pid]
        detail = "supervisor" if workers else "worker"
        if chance.random() < 0.3:  # noqa: PLR2004 - now and then all at once, as when a machine dies
            pids += below(seat.pid)
            detail = f"{detail} and all below it"
        seat.was_hit = True
        with stage.log.fault(self.kind, seat.target, detail):
            ended = seat.ended
            for pid in pids:
                _kill(pid)
            async with asyncio.timeout(stage.plan.scaled(_PATIENCE)):
                await ended.wait()
        return True

    async def _kill_one(self, stage: Stage, seat: Seat, pid: int) -> bool:
        """Kill a worker whose supervisor lives, which is to free at once what that worker held."""
        name = process_name("worker", seat.name, pid)
        with stage.log.fault(self.kind, name, "worker under a supervisor"):
            _kill(pid)
            async with asyncio.timeout(stage.plan.scaled(_PATIENCE)):
                while is_alive(pid):  # noqa: ASYNC110 - it is not our child: its end is no event here
                    await asyncio.sleep(_LOOK)
            stage.log.exited(name, -signal.SIGKILL)
        return True


def _below_supervisor(stage: Stage, seat: Seat) -> list[int]:
    """Return the workers under a supervisor: those below it that have a history."""
    if seat.settings is None or seat.settings.processes == 1:
        return []
    return [
        pid
        for pid in below(seat.pid)
        if (stage.log.directory / (process_name("worker", seat.name, pid) + SUFFIX)).exists()
    ]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
