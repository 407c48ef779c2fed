"""A monotonic clock that also counts the time during which the machine was suspended.

Linux stops its monotonic clock during a suspend, while other machines and the store continue. A process that measures
how long others have been without its heartbeat must include that time.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime() -> float:
    """Return the seconds since boot, including suspends where the system counts them; the clock never steps."""
    return time.clock_gettime(_CLOCK)
