"""Deliberate bugs, one at a time, for the simulation to find."""

from __future__ import annotations

from tests.torture import simulation_look_mutants, simulation_machine_mutants, simulation_store_mutants
from tests.torture.simulation_planting import Mutant

LOOK_MUTANTS: list[Mutant] = simulation_look_mutants.MUTANTS
MUTANTS: list[Mutant] = [*simulation_store_mutants.MUTANTS, *simulation_machine_mutants.MUTANTS, *LOOK_MUTANTS]
