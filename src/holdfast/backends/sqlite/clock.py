"""The clock of a store that is a file: the host's wall clock, read while the write lock is held."""

from __future__ import annotations

import time
from datetime import timedelta

_STEP = 1_000_000  # microseconds by which a wall clock may differ from the monotonic one between two looks


def host_clock() -> int:
    """Return microseconds since 1970 in UTC."""
    return time.time_ns() // 1000


class Steady:
    """Notices when the wall clock was set: then every lease seems to have expired at once, though every worker lives.

    How long the clock has been steady counts like access to the store: a rescuer waits until the living have extended.
    """

    def __init__(self) -> None:
        self._offset: int | None = None
        self._steady_from = float("-inf")

    def since(self, wall: int, monotonic: float) -> timedelta:
        """Return how long the wall clock has kept step with the monotonic one."""
        offset = wall - int(monotonic * 1_000_000)
        if self._offset is not None and abs(offset - self._offset) > _STEP:
            self._steady_from = monotonic
        self._offset = offset
        return timedelta(seconds=min(monotonic - self._steady_from, 1e9))
