"""Limits on handlers' transactions, watched by one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

_logger = logging.getLogger("holdfast.sqlite")


class Deadline:
    """A function to be called when its time has come, unless it is dropped before."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def drop(self) -> None:
        """Take it back."""
        self.action = None


class Deadlines:
    """Calls functions when their time has come. The thread starts with the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Deadline]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self, limit: timedelta, action: Callable[[], None]) -> Deadline:
        """Call `action` after `limit`, unless the deadline is dropped before."""
        deadline = Deadline(action)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="holdfast-sqlite-deadlines", daemon=True)
                thread.start()  # may be refused by the system: then the next one tries again
                self._thread = thread
            entry = (time.monotonic() + limit.total_seconds(), next(self._numbers), deadline)
            heapq.heappush(self._waiting, entry)
            if self._waiting[0] is entry:
                self._changed.notify()
        return deadline

    def _watch(self) -> None:
        while (deadline := self._next()) is not None:
            action = deadline.action
            if action is not None:
                try:
                    action()
                except Exception:
                    _logger.exception("a transaction past its limit could not be rolled back")

    def _next(self) -> Deadline | None:
        with self._changed:
            while not self._closed:
                while self._waiting and self._waiting[0][2].action is None:
                    heapq.heappop(self._waiting)
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
