"""kill -9 of a worker, of one under a supervisor, of the supervisor, or of all of them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import ClassVar

from holdfast.torture.fleet import FleetSeat
from holdfast.torture.history import SUFFIX, process_name
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.process_tree import descendants, is_alive
from holdfast.torture.run_context import RunContext

_POLL = 0.01  # seconds
_TIMEOUT = 20.0  # on an idle machine


class Kill(FaultInjector):
    """Kills processes without warning; processes that exited otherwise do not count."""

    kind: ClassVar = Fault.KILL
    at_once: ClassVar = 2

    def __init__(self) -> None:
        self._dying: set[FleetSeat] = set()
        """The seats with a kill in progress: one death must not count twice."""

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Kill a worker at a random moment."""
        seats = [seat for seat in run.fleet.running() if seat not in self._dying]
        if not seats:
            return False
        # Leave workers armed with a failpoint alone, if there are others: the failpoint would count this death.
        seat = chance.choice([seat for seat in seats if not seat.armed.failpoints] or seats)
        self._dying.add(seat)
        try:
            workers = _workers_of_supervisor(run, seat)
            if workers and chance.random() < 0.5:  # noqa: PLR2004 - every other time
                return await self._kill_one(run, seat, chance.choice(workers))
            return await self._kill_all(run, seat, chance, detail="supervisor" if workers else "worker")
        finally:
            self._dying.discard(seat)

    async def _kill_all(self, run: RunContext, seat: FleetSeat, chance: random.Random, *, detail: str) -> bool:
        """Kill the process in a seat; True if it died of that, not by itself or of another signal."""
        process, ended = seat.process, seat.ended
        pids = [seat.pid]
        if chance.random() < 0.3:  # noqa: PLR2004 - at times all at once, as when a machine dies
            pids += descendants(seat.pid)
            detail = f"{detail} and all its descendants"
        seat.was_hit = True
        with run.log.fault(self.kind, seat.target, detail):
            was_alive, *_ = [_kill(pid) for pid in pids]
            async with asyncio.timeout(run.plan.scaled(_TIMEOUT)):
                await ended.wait()
        return was_alive and process is not None and process.returncode == -signal.SIGKILL

    async def _kill_one(self, run: RunContext, seat: FleetSeat, pid: int) -> bool:
        """Kill a worker whose supervisor lives, which must free the worker's leases at once.

        Its exit code is not known here: it counts, and is recorded as killed, if it was alive when the signal was sent.
        """
        name = process_name("worker", seat.name, pid)
        with run.log.fault(self.kind, name, "worker under a supervisor"):
            if not _kill(pid):
                return False
            async with asyncio.timeout(run.plan.scaled(_TIMEOUT)):
                while is_alive(pid):  # noqa: ASYNC110 - it is not our child: its exit is no event here
                    await asyncio.sleep(_POLL)
            run.log.exited(name, -signal.SIGKILL)
        return True


def _workers_of_supervisor(run: RunContext, seat: FleetSeat) -> list[int]:
    """Return the workers under a supervisor: its descendants that have a history."""
    if seat.settings is None or seat.settings.processes == 1:
        return []
    return [
        pid
        for pid in descendants(seat.pid)
        if (run.log.directory / (process_name("worker", seat.name, pid) + SUFFIX)).exists()
    ]


def _kill(pid: int) -> bool:
    """Kill a process; False if it had exited before, even if not yet reaped."""
    was_alive = is_alive(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return was_alive
