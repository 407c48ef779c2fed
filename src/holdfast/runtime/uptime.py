"""A clock for how long something has lasted, on a machine that may sleep.

The monotonic clock of Linux stands still while the machine is suspended, but other machines go on and the store with
them. Whoever measures how long others may have been waiting for it must count the sleep.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime() -> float:
    """Return the seconds since this machine was started, sleep included where the system counts it; it never steps."""
    return time.clock_gettime(_CLOCK)
