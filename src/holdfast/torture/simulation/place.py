"""What all simulated processes share."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.torture.simulation.scenario import Scenario, Work
from holdfast.torture.simulation.store import Store
from holdfast.torture.simulation.wire import Rates, Wire
from holdfast.torture.simulation.world import Violated, World


class Place:
    """The world, the store, the dice, and what each job's handler will do.

    Each kind of chance has dice of its own, so that a change in one place does not shift all others.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World()
        self.store = Store(self.world)
        self.work = random.Random(f"work {scenario.seed}")  # noqa: S311 - a simulation is to be repeatable
        self._wires = random.Random(f"wires {scenario.seed}")  # noqa: S311
        self.rates = scenario.rates
        self.works: dict[str, Work] = {work.new.id: work for work in scenario.works}

    def wire(self) -> Wire:
        """Return a way to the store."""
        return self._wire(lambda: self.rates.trouble)

    def keeper_wire(self) -> Wire:
        """Return a keeper's way to the store, which fares better or worse than the loop's."""
        return self._wire(lambda: self.rates.keeper_trouble)

    def _wire(self, trouble: Callable[[], float]) -> Wire:
        slowest = self.scenario.lease * 1.5
        return Wire(self.world, self._wires, self.store.weather, trouble=trouble, slowest=slowest)

    def calm(self) -> None:
        """Let no call go wrong from now on."""
        self.rates = Rates()

    def accuse(self, rule: str, message: str, job_id: str | None = None) -> None:
        """Report a rule that a worker has broken."""
        raise Violated(rule, message, job_id)
