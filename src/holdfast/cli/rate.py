"""A rate over the last few seconds."""

from __future__ import annotations

_RATE_OVER = 3.0  # seconds


class Rate:
    """The number of jobs that end per second, over the last few seconds."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def add(self, now: float, ended: int) -> float:
        """Record how many have ended; return the rate."""
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[1][0] > _RATE_OVER:  # noqa: PLR2004 - a rate needs two points
            self._seen.pop(0)
        first, number = self._seen[0]
        return (ended - number) / (now - first) if now > first else 0.0
