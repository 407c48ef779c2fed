"""Faults armed for the next worker to start."""

from __future__ import annotations

import asyncio
import random

from holdfast.torture.fleet import Armed, FleetSeat
from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext

_PATIENCE = 1.5  # seconds to wait for a restart that happens anyway
_LOOK = 0.02
_LONGEST = 20.0


async def started_with(armed: Armed, stage: RunContext, chance: random.Random) -> FleetSeat | None:
    """Return the seat whose new worker has the armed fault; if none starts by itself, ask one to shut down."""
    fleet = stage.fleet
    fleet.waiting.append(armed)
    clock = asyncio.get_running_loop().time
    began = clock()
    has_asked = False
    while clock() < began + stage.plan.scaled(_LONGEST):
        for seat in fleet.seats:
            if seat.armed is armed and seat.is_running:
                return seat
        if not has_asked and clock() > began + _PATIENCE and (seats := fleet.running()):
            has_asked = True
            seat = chance.choice(seats)
            seat.was_hit = True
            with stage.log.fault(Fault.TERM, seat.target, "SIGTERM, to start another", asks=True):
                seat.ask()
            stage.log.count(Fault.TERM)
        await asyncio.sleep(_LOOK)  # only the seat shows a start
    if armed in fleet.waiting:
        fleet.waiting.remove(armed)
    return None
