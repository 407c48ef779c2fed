"""The floor of each lane: the place in its index at which the next claim begins its scan.

Claimed jobs leave dead entries at the front of the lane's index. While a long transaction elsewhere keeps a snapshot
open, vacuum cannot remove them, and a claim that scans them gets slower with every job done. So a claim begins at the
place of the previous one. The floor is local to the process: jobs that other processes insert below it are found by
full scans, from the start of the lane. Full scans may take a fiftieth of the time, a fifth while claims find nothing,
and are not limited while they are fast.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

_SHARE = 50
_IDLE_SHARE = 5
_QUICK = 0.005
_SOONEST = 0.05

Place = tuple[int, int]


class Floors:
    """The place, (turn, seq), of the last job claimed from each lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}
        self._lowered = 0
        self._scanned_at = float("-inf")
        self._cost = 0.0

    def starts(self) -> tuple[dict[int, Place], int]:
        """Return the places to begin at, and a mark to pass to `claimed`."""
        with self._lock:
            if self._clock() - self._scanned_at >= max(_SOONEST, self._cost * _SHARE):
                self._places.clear()
            return dict(self._places), self._lowered

    def claimed(self, mark: int, last: Mapping[int, Place], *, took: float, scanned: bool) -> None:
        """Record the place of the last job that a claim took from each lane; `scanned`: it was a full scan."""
        with self._lock:
            if scanned:
                self._scanned_at, self._cost = self._clock(), took
            if mark != self._lowered:
                return  # a floor was lowered while the claim was in flight
            for lane_id, place in last.items():
                self._places[lane_id] = max(place, self._places.get(lane_id, place))

    def came_short(self, *, found_none: bool) -> bool:
        """Make the next claim a full scan if its share of the time allows that; return whether it does."""
        share = _IDLE_SHARE if found_none else _SHARE
        with self._lock:
            rested = self._clock() - self._scanned_at
            if not self._places or not (self._cost <= _QUICK or rested >= self._cost * share):
                return False
            self._places.clear()
            return True

    def lower(self, places: Sequence[tuple[int, int, int]]) -> None:
        """Lower the floors to these places, (lane_id, turn, seq), where jobs became ready."""
        with self._lock:
            self._lowered += len(places)
            for lane_id, turn, seq in places:
                known = self._places.get(lane_id)
                if known is not None and (turn, seq) < known:
                    self._places[lane_id] = (turn, seq)
