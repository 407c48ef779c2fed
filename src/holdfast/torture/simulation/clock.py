"""Clocks that disagree."""

from __future__ import annotations

from holdfast.torture.simulation.world import SECOND, SimulatedWorld

STORE_START = 1_700_000_000_000_000


class StoreClock:
    """The store's clock, which may be set forwards or back."""

    __slots__ = ("_latest", "_offset", "_world")

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._offset = STORE_START
        self._latest = 0

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self._world.now + self._offset

    def step(self, by: int) -> None:
        """Step the clock by microseconds."""
        self._latest = self.latest()
        self._offset += by

    def latest(self) -> int:
        """Return the latest time ever shown: a job due then may run, although it is not due now."""
        return max(self._latest, self())


class WorkerClock:
    """A worker's monotonic clock: it starts anywhere, drifts, may stop or leap, and never goes back."""

    __slots__ = ("_world", "offset", "rate")

    def __init__(self, world: SimulatedWorld, *, rate: float, offset: float) -> None:
        self._world = world
        self.rate = rate
        self.offset = offset

    def __call__(self) -> float:
        """Return the reading in seconds."""
        return self.offset + self._world.now / SECOND * self.rate

    def span(self, seconds: float) -> int:
        """Return how many true microseconds pass while this clock counts `seconds`; rounded up, as timers are."""
        return int(seconds / self.rate * SECOND) + 1
