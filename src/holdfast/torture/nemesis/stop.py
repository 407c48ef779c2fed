"""SIGSTOP past the lease, like a paused VM or a swapped-out process; it resumes as if it still held its leases."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Generator
from typing import ClassVar

from holdfast.torture.fleet import FleetSeat
from holdfast.torture.plan import Fault
from holdfast.torture.process_tree import below
from holdfast.torture.run_context import RunContext

_ALL = 0.1  # of the stops hit all workers at once
_WITH_CHILDREN = 0.5
_SHORTEST, _LONGEST = 1.25, 2.5  # leases


class Stop:
    """Freezes workers until their leases have been taken by others."""

    kind: ClassVar = Fault.STOP
    at_once: ClassVar = 2

    def why_not(self, stage: RunContext) -> str | None:  # noqa: ARG002 - as the protocol says
        """Nothing stands against it, anywhere."""
        return None

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Stop one worker, or all, and resume them after more than a lease."""
        running = stage.fleet.running()
        if not running:
            return False
        seats = running if chance.random() < _ALL else [chance.choice(running)]
        seconds = stage.plan.lease * chance.uniform(_SHORTEST, _LONGEST)
        # A process stopped inside a SQLite transaction keeps the write lock.
        stalls = stage.ground.kind == "sqlite" or len(seats) == len(running)
        async with contextlib.AsyncExitStack() as stack:
            for seat in seats:
                pids = [seat.pid, *(below(seat.pid) if chance.random() < _WITH_CHILDREN else [])]
                stack.enter_context(stage.log.fault(self.kind, seat.target, f"for {seconds:.1f} s", stalls=stalls))
                stack.enter_context(_stopped(seat, pids))
            await asyncio.sleep(seconds)  # the duration of the fault
        return True


@contextlib.contextmanager
def _stopped(seat: FleetSeat, pids: list[int]) -> Generator[None]:
    seat.is_stopped = True
    process = seat.process
    try:
        _send(pids, signal.SIGSTOP)
        yield
    finally:
        _send(pids, signal.SIGCONT)
        if seat.process is process:
            seat.is_stopped = False


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
