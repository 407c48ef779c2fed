"""The interface of a fault."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from holdfast.torture.plan import Fault
from holdfast.torture.run_context import RunContext


class FaultInjector(ABC):
    """A kind of fault."""

    kind: ClassVar[Fault]
    at_once: ClassVar[int] = 1
    """How many faults of this kind may be in progress at the same time."""

    def why_not(self, run: RunContext) -> str | None:  # noqa: ARG002 - for subclasses
        """Return why this kind cannot be injected in this run; None if it can."""
        return None

    @abstractmethod
    async def inject(self, run: RunContext, chance: random.Random) -> bool:
        """Inject the fault, and wait until it ends; False if there was no target."""
