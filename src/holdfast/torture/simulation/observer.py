"""What is true of a worker, whatever it believes itself."""

from __future__ import annotations

from dataclasses import dataclass, field

ALWAYS = -(10**15)


@dataclass(slots=True)
class WorkerTruth:
    """One incarnation of a worker, as the simulator knows it; instants and spans in microseconds of true time."""

    id: str
    concurrency: int
    lease: int
    is_healthy: bool = True
    """It runs, and is not on its way out: such a worker keeps what it holds."""
    ended_at: int | None = None
    """When it ended or died."""
    troubled_until: int = ALWAYS
    """Until when it could not be expected to extend: it was frozen, cut off, kept waiting, or its clock was changed."""
    misled_at: int = ALWAYS
    """When its clock last leapt ahead, or went on after it had stood still: it could not see how long things took."""
    claimed_at: int = 0
    """When the latest of its claims was done of which it has the answer."""
    taken: int = 0
    """How many jobs it has taken in."""
    fences: set[int] = field(default_factory=set[int])
    """The claims whose answers it has taken in: of the others it cannot know."""

    def trouble(self, until: int) -> None:
        """Note trouble of this worker's own."""
        self.troubled_until = max(self.troubled_until, until)
