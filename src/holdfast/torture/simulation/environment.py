"""What all simulated processes share."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.torture.simulation.network import Rates, SimulatedNetwork
from holdfast.torture.simulation.scenario import Scenario, SimulatedWork
from holdfast.torture.simulation.store import Store
from holdfast.torture.simulation.world import SECOND, SimulatedWorld, Violated


class Environment:
    """The world, the store, the random generators, and what each job's handler will do.

    Each kind of choice has its own generator, so that a change in one place does not shift all others.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = SimulatedWorld()
        self.store = Store(
            self.world,
            oldest=int(scenario.rates.oldest * SECOND) if scenario.rates.stale_reads else 0,
            until_empty=any(seat.settings.until_empty for seat in scenario.seats),
        )
        self.work = random.Random(f"work {scenario.seed}")  # noqa: S311 - a simulation must be repeatable
        self._network_rng = random.Random(f"wires {scenario.seed}")  # noqa: S311
        self._read_rng = random.Random(f"looks {scenario.seed}")  # noqa: S311
        self.rates = scenario.rates
        self.works: dict[str, SimulatedWork] = {work.new.id: work for work in scenario.works}

    def network(self) -> SimulatedNetwork:
        """Return a connection to the store."""
        return self._network(lambda: self.rates.trouble)

    def keeper_network(self) -> SimulatedNetwork:
        """Return a lease keeper's connection to the store, which fails more or less often than the loop's."""
        return self._network(lambda: self.rates.keeper_trouble)

    def _network(self, trouble: Callable[[], float]) -> SimulatedNetwork:
        slowest = self.scenario.lease * 1.5
        status = self.store.status
        return SimulatedNetwork(
            self.world, self._network_rng, status, trouble=trouble, slowest=slowest, aged=self._aged
        )

    def _aged(self, seen: int) -> int:
        """Draw the age of a read: as of now, or of an earlier time, but not before what its caller has seen."""
        rates, now = self.rates, self.world.now
        if not rates.stale_reads or self._read_rng.random() >= rates.stale_reads:
            return now
        return max(seen, now - int(self._read_rng.random() * rates.oldest * SECOND), 0)

    def stop_faults(self) -> None:
        """Stop all network faults from now on."""
        self.rates = Rates()

    def report(self, rule: str, message: str, job_id: str | None = None) -> None:
        """Report a rule that a worker broke."""
        raise Violated(rule, message, job_id)
