"""Exponential backoff after failures in a row."""

from __future__ import annotations

FIRST = 0.1
LONGEST = 5.0


class Backoff:
    """The pause after failures of one kind of call: 0.1 s, doubled by each failure in a row, at most 5 s."""

    __slots__ = ("failures", "until")

    def __init__(self) -> None:
        self.failures = 0
        self.until = float("-inf")

    def failed(self, now: float) -> None:
        """Start the next, longer pause."""
        self.until = now + min(FIRST * 2.0 ** min(self.failures, 10), LONGEST)
        self.failures += 1

    def succeeded(self) -> None:
        """Reset to the shortest pause."""
        if self.failures:
            self.failures = 0
            self.until = float("-inf")
