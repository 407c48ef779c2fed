"""The interface of a fault."""

from __future__ import annotations

import random
from typing import ClassVar, Protocol

from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext


class Striker(Protocol):
    """A kind of fault."""

    kind: ClassVar[Fault]
    at_once: ClassVar[int]
    """How many faults of this kind may be in progress at the same time."""

    def why_not(self, stage: RunContext) -> str | None:
        """Return why this kind cannot be injected in this run; None if it can."""
        ...

    async def strike(self, stage: RunContext, chance: random.Random) -> bool:
        """Inject the fault, and wait until it is over; False if there was no target."""
        ...
