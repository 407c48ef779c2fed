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
from holdfast.torture.nemesis.base import FaultInjector
from holdfast.torture.plan import Fault
from holdfast.torture.process_tree import descendants
from holdfast.torture.run_context import RunContext

_ALL = 0.1  # of the stops hit all workers at once
_WITH_CHILDREN = 0.5
_SHORTEST, _LONGEST = 1.25, 2.5  # leases


class Stop(FaultInjector):
    """Freezes workers until their leases have been taken by others."""

    kind: ClassVar = Fault.STOP
    at_once: ClassVar = 2

    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Stop one worker, or all, and resume them after more than a lease."""
        running = run.fleet.running()
        if not running:
            return False
        seats = running if chance.random() < _ALL else [chance.choice(running)]
        seconds = run.plan.lease * chance.uniform(_SHORTEST, _LONGEST)
        # With one write lock, a process stopped inside a transaction blocks all others.
        stalls = run.target.one_writer or len(seats) == len(running)
        async with contextlib.AsyncExitStack() as stack:
            for seat in seats:
                pids = [seat.pid, *(descendants(seat.pid) if chance.random() < _WITH_CHILDREN else [])]
                stack.enter_context(run.log.fault(self.kind, seat.target, f"for {seconds:.1f} s", stalls=stalls))
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
