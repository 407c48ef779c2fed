"""Faults armed for the next worker to start."""

from __future__ import annotations

import asyncio
import random

from holdfast.torture.fleet import Armed, FleetSeat
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_TIMEOUT = 1.5  # seconds to wait for a restart that happens anyway
_POLL = 0.02
_LONGEST = 20.0


async def started_with(armed: Armed, run: RunContext, chance: random.Random) -> FleetSeat | None:
    """Return the seat whose new worker has the armed fault; if none starts by itself, ask one to shut down."""
    fleet = run.fleet
    fleet.waiting.append(armed)
    clock = asyncio.get_running_loop().time
    began = clock()
    has_requested = False
    while clock() < began + run.plan.scaled(_LONGEST):
        for seat in fleet.seats:
            if seat.armed is armed and seat.is_running:
                return seat
        if not has_requested and clock() > began + _TIMEOUT and (seats := fleet.running()):
            has_requested = True
            seat = chance.choice(seats)
            seat.was_hit = True
            with run.log.fault(Fault.TERM, seat.target, "SIGTERM, to start another", asks=True):
                seat.ask()
            run.log.count(Fault.TERM)
        await asyncio.sleep(_POLL)  # only the seat shows a start
    if armed in fleet.waiting:
        fleet.waiting.remove(armed)
    return None
