"""When a drain counts as stuck: not when it takes long, but when no further job ends."""

from __future__ import annotations


class Draining:
    """What is left after the faults, and since when it has not decreased."""

    def __init__(self, now: float, *, timeout: float) -> None:
        """`timeout`: the seconds that may pass until another job ends."""
        self._timeout = timeout
        self._since = now
        self._least: int | None = None

    def update(self, now: float, left: int) -> None:
        """Record how much is left; jobs that enqueue jobs may increase it for a while."""
        if self._least is None or left < self._least:
            self._least, self._since = left, now

    def is_stuck(self, now: float) -> bool:
        """Return whether nothing has ended for too long."""
        return now - self._since > self._timeout
