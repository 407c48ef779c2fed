"""A shorter thread switch interval while a worker runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

_INTERVAL = 0.00005


class _Switching:
    """The interval applies to the process: the first worker to start shortens it, the last to end restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._before = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._workers:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _INTERVAL))
            self._workers += 1

    def end(self) -> None:
        with self._lock:
            self._workers -= 1
            if not self._workers:
                sys.setswitchinterval(self._before)


_switching = _Switching()


@contextmanager
def quick_switches() -> Generator[None]:
    """Shorten the wait of threads for the interpreter lock while a worker runs; several workers may overlap.

    After each statement the store's thread waits until the event loop's thread releases the lock, by default 5 ms.
    With 0.05 ms claim, handle and finish overlap: `drain.one` on SQLite rose from 70,000 to 138,000 jobs a second for
    the same CPU time.
    """
    _switching.begin()
    try:
        yield
    finally:
        _switching.end()
