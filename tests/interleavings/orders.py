"""Which orders of steps there are, and which of them are worth running.

An order is found by running it: a side tells its next step only when it has the answer to the last one. So the search
begins anew for each order, repeats the choices made so far, and takes another way at the last place where there is one.

Two neighbouring steps of different sides that touch nothing in common can change places, and nobody could tell. Of all
orders that differ only so, one is run. So another way is taken only where a later step clashes with the one taken; and
a side whose step was tried first at some place sleeps in the other ways from there, until a step is taken that clashes
with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTHING: frozenset[str] = frozenset()
NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Footprint:
    """What a step touches: `reads` is seen as committed, `locks` is written or locked, `ends` is let go by its end."""

    reads: frozenset[str] = NOTHING
    locks: frozenset[str] = NOTHING
    ends: frozenset[str] = NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        """Return what both touch together."""
        return Footprint(self.reads | other.reads, self.locks | other.locks, self.ends | other.ends)

    def clashes(self, other: Footprint) -> bool:
        """Tell whether the order of the two can be told.

        Nobody sees what is not committed, so a read does not clash with a write, but with the end that lets it be seen.
        """
        return bool(
            self.locks & other.locks
            or self.ends & (other.reads | other.locks)
            or other.ends & (self.reads | self.locks)
        )


class DivergedError(AssertionError):
    """The same choices have led elsewhere: the orders cannot be counted."""


@dataclass
class _Place:
    """A place where there was a choice of sides: who was `tried`, who is `wanted` and who is asleep."""

    steps: dict[int, Footprint]
    asleep: frozenset[int]
    chosen: int
    wanted: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)

    def asleep_after(self) -> frozenset[int]:
        """Return who need not go next after the chosen side has gone."""
        step = self.steps[self.chosen]
        return frozenset(
            side for side in self.asleep | self.tried if side != self.chosen and not self.steps[side].clashes(step)
        )

    def want(self, side: int) -> None:
        """Let a side go first here; if it could not go at all, let all others that might bring it so far."""
        self.wanted |= {side} if side in self.steps else self.steps.keys()

    def choose_another(self) -> bool:
        """Take another side that is wanted here; False if there is none."""
        self.tried.add(self.chosen)
        for side in self.steps:
            if side in self.wanted and side not in self.tried and side not in self.asleep:
                self.chosen = side
                return True
        return False


class Orders:
    """All orders, one at a time: `while orders.another(): ... orders.choose(...) ...`.

    With `every`, no order is left out for being the like of another. `divergences`: how often the same choices may lead
    elsewhere, as on a store whose locks depend on what it has not cleaned up yet; the search then goes on from there.
    """

    def __init__(self, *, every: bool = False, divergences: int = 0) -> None:
        self._every = every
        self._divergences = divergences
        self._places: list[_Place] = []
        self._depth = 0
        self._begun = False

    def another(self) -> bool:
        """Begin the next order; False if there is none."""
        self._depth = 0
        if not self._begun:
            self._begun = True
            return True
        while self._places and not self._places[-1].choose_another():
            self._places.pop()
        return bool(self._places)

    def choose(self, steps: Mapping[int, Footprint]) -> int | None:
        """Return the side that goes next; None if an order like this one was run before."""
        if self._depth < len(self._places) and self._places[self._depth].steps != steps:
            if not self._divergences:
                raise DivergedError(f"at step {self._depth}: {self._places[self._depth].steps} were {steps}")
            self._divergences -= 1
            del self._places[self._depth :]
        if self._depth == len(self._places):
            self._note_clashes(steps)
            asleep = self._places[-1].asleep_after() if self._places and not self._every else NOBODY
            awake = [side for side in steps if side not in asleep]
            if not awake:
                return None
            wanted = set(steps) if self._every else set[int]()
            self._places.append(_Place(dict(steps), asleep, awake[0], wanted))
        place = self._places[self._depth]
        self._depth += 1
        return place.chosen

    def _note_clashes(self, steps: Mapping[int, Footprint]) -> None:
        """Wherever another side's step clashes with one that comes next, the other way round is to be tried."""
        for place in self._places:
            done = place.steps[place.chosen]
            for side, step in steps.items():
                if side != place.chosen and step.clashes(done):
                    place.want(side)
