"""Detects that the clock of a store was set: a host's wall clock may jump, and a failover may lead to another host."""

from __future__ import annotations

from datetime import timedelta

_STEP = 1_000_000  # microseconds by which a wall clock may differ from the monotonic one between two readings


class Steady:
    """Detects that the store's clock was set: all leases then seem to have expired at once, though their workers live.

    The time for which the clock has been steady limits a rescue in the same way as the time of unbroken access to the
    store: live workers get the time to extend their leases first.
    """

    def __init__(self) -> None:
        self._least, self._most = float("-inf"), float("inf")
        self._steady_from = float("-inf")

    def since(self, wall: int, sent: float, received: float) -> timedelta:
        """Return for how long the store's clock has advanced together with the monotonic clock of this process.

        The store read `wall` at some moment between `sent` and `received`, so a reply that came late is no step.
        """
        least, most = wall - received * 1_000_000, wall - sent * 1_000_000
        if least > self._most + _STEP or most < self._least - _STEP:
            self._steady_from = received
        elif least <= self._most and most >= self._least:
            least, most = max(least, self._least), min(most, self._most)
        self._least, self._most = least, most
        return timedelta(seconds=min(received - self._steady_from, 1e9))

    def limited(self, access: timedelta, wall: int, sent: float, received: float) -> timedelta:
        """Return the access to the store that counts for a rescue.

        Of the time with a steady clock, half of it: a rescue needs access for half the lease's duration, because
        workers extend at about that time after their last extension, not after the step.
        """
        return min(access, self.since(wall, sent, received) / 2)
