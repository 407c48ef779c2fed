"""Where in each lane the next claim begins to look.

What was claimed leaves dead entries at the front of the lane's index, and while a long transaction elsewhere holds a
snapshot open they cannot be removed: a claim that walks them gets slower with every job done. So a claim begins at the
place of the last one. That is a hint of this process: jobs that come to lie below it, put there by others, are found by
claims that begin at the start; these may take a fiftieth of the time, a fifth while there is nothing else to do, and
are free while they are quick.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

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

    def hints(self) -> tuple[dict[int, Place], int]:
        """Return the places to begin at, and a mark to hand back to `claimed`."""
        with self._lock:
            if self._clock() - self._scanned_at >= max(_SOONEST, self._cost * _SHARE):
                self._places.clear()
            return dict(self._places), self._lowered

    def claimed(self, mark: int, taken: Iterable[tuple[int, int, int]], *, took: float, scanned: bool) -> None:
        """Note what a claim took, as (lane_id, turn, seq) in order; `scanned`: it had begun at the start."""
        with self._lock:
            if scanned:
                self._scanned_at, self._cost = self._clock(), took
            if mark != self._lowered:
                return  # something came to lie below while the claim was on its way
            for lane_id, turn, seq in taken:
                known = self._places.get(lane_id)
                if known is None or known < (turn, seq):
                    self._places[lane_id] = (turn, seq)

    def came_short(self, *, found_none: bool) -> bool:
        """Begin at the start next time, if that can be afforded; whether it can."""
        share = _IDLE_SHARE if found_none else _SHARE
        with self._lock:
            rested = self._clock() - self._scanned_at
            if not self._places or not (self._cost <= _QUICK or rested >= self._cost * share):
                return False
            self._places.clear()
            return True

    def lower_all(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Jobs have become ready at these places; the first of each lane is enough, the others come after it."""
        first: dict[int, Place] = {}
        for lane_id, turn, seq in places:
            known = first.get(lane_id)
            if known is None or (turn, seq) < known:
                first[lane_id] = (turn, seq)
        for lane_id, (turn, seq) in first.items():
            self.lower(lane_id, turn, seq)

    def lower(self, lane_id: int, turn: int, seq: int) -> None:
        """A job has come to lie at this place."""
        with self._lock:
            self._lowered += 1
            known = self._places.get(lane_id)
            if known is not None and (turn, seq) < known:
                self._places[lane_id] = (turn, seq)
