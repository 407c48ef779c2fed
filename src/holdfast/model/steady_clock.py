"""Detects that the clock of a store was set: a host's wall clock may jump."""

from __future__ import annotations

from datetime import timedelta

_STEP = 1_000_000  # microseconds by which a wall clock may differ from the monotonic one between two readings


class Steady:
    """Detects that the wall clock was set: all leases then seem to have expired at once, though their workers live.

    The time for which the clock has been steady limits a rescue in the same way as the time of unbroken access to the
    store: live workers get the time to extend their leases first.
    """

    def __init__(self) -> None:
        self._offset: int | None = None
        self._steady_from = float("-inf")

    def since(self, wall: int, monotonic: float) -> timedelta:
        """Return for how long the wall clock has advanced together with the monotonic clock."""
        offset = wall - int(monotonic * 1_000_000)
        if self._offset is not None and abs(offset - self._offset) > _STEP:
            self._steady_from = monotonic
        self._offset = offset
        return timedelta(seconds=min(monotonic - self._steady_from, 1e9))
