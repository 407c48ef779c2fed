"""Limits on handlers' transactions, watched by one thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta


class Deadlines:
    """Calls functions when their time has come, unless they were taken back. The thread starts with the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._dropped: set[int] = set()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def at(self, limit: timedelta, action: Callable[[], None]) -> Generator[None]:
        """Call `action` if the block lasts longer than `limit`."""
        number = next(self._numbers)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="holdfast-sqlite-deadlines", daemon=True)
                thread.start()  # may be refused by the system: then the next one tries again
                self._thread = thread
            heapq.heappush(self._waiting, (time.monotonic() + limit.total_seconds(), number, action))
            if self._waiting[0][1] == number:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._dropped.add(number)

    def _watch(self) -> None:
        while True:
            action = self._next()
            if action is None:
                return
            action()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closed:
                while self._waiting and self._waiting[0][1] in self._dropped:
                    self._dropped.discard(heapq.heappop(self._waiting)[1])
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(wait)
            return None

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
