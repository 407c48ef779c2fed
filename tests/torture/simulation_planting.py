"""What a deliberate bug is, and how to declare one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """A bug: its name, how to plant it, whether only the drain after the faults shows it, and within how many seeds."""

    name: str
    plant: Plant
    liveness: bool
    seeds: int

    @property
    def is_rare(self) -> bool:
        return self.seeds > 100


class Mutants(list[Mutant]):
    """Bugs, each declared by a function that plants it and is named after it."""

    def common(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=100)

    def rare(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=1500)

    def rarest(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=3000)

    def stalling(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=100, liveness=True)

    def _declare(self, plant: Plant, *, seeds: int, liveness: bool = False) -> Plant:
        self.append(Mutant(plant.__name__.replace("_", " "), plant, liveness, seeds))
        return plant
