"""The true state of a worker, independent of its own view."""

from __future__ import annotations

from dataclasses import dataclass, field

ALWAYS = -(10**15)


@dataclass(slots=True)
class WorkerTruth:
    """One incarnation of a worker, as the simulator knows it; times in microseconds of true time."""

    id: str
    concurrency: int
    lease: int
    is_healthy: bool = True
    """It runs and is not shutting down: such a worker keeps its leases."""
    ended_at: int | None = None
    """When it exited or died."""
    troubled_until: int = ALWAYS
    """Until when it could not be expected to extend: frozen, cut off, waiting, or its clock was changed."""
    misled_at: int = ALWAYS
    """When its clock last leapt ahead, or resumed after it had stopped: it could not measure durations."""
    claimed_at: int = 0
    """When the latest answered claim of it took effect."""
    taken: int = 0
    """The number of jobs it received."""
    fences: set[int] = field(default_factory=set[int])
    """The fences of the claims whose replies it received; it cannot know of others."""

    def trouble(self, until: int) -> None:
        """Record a fault of this worker only."""
        self.troubled_until = max(self.troubled_until, until)
