"""The clock of a store that is a file: the host's wall clock, read while the write lock is held."""

from __future__ import annotations

import time


def host_clock() -> int:
    """Return microseconds since 1970 in UTC."""
    return time.time_ns() // 1000
