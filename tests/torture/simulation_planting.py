"""What a deliberate bug is, and how to declare one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """A bug: its name, how to plant it, whether only the drain after the faults shows it, and within how many seeds.

    `first` is a seed shortly before one that shows it: the search begins there, and goes round through all seeds.
    """

    name: str
    plant: Plant
    liveness: bool
    seeds: int
    first: int = 0

    @property
    def is_rare(self) -> bool:
        return self.seeds > 100


class Mutants(list[Mutant]):
    """Bugs, each declared by a function that plants it and is named after it."""

    def common(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=100)

    def rare(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=1500)

    def rarest(self, *, first: int) -> Callable[[Plant], Plant]:
        return lambda plant: self._declare(plant, seeds=3000, first=first)

    def stalling(self, plant: Plant) -> Plant:
        return self._declare(plant, seeds=100, liveness=True)

    def _declare(self, plant: Plant, *, seeds: int, liveness: bool = False, first: int = 0) -> Plant:
        self.append(Mutant(plant.__name__.replace("_", " "), plant, liveness, seeds, first))
        return plant
