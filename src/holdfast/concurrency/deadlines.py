"""Timeouts for blocking code, watched by one thread.

A `threading.Timer` starts and joins a thread for each timeout, which costs more than most statements that it would
guard. Here a timeout is an entry in a heap.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_logger = logging.getLogger("holdfast.deadlines")
_FEW: Final = 32


class DeadlinesClosedError(Exception):
    """No deadline can be set any more."""


class Deadline:
    """An action to run at a given time, unless it is cancelled before."""

    __slots__ = ("_cancelled", "_running", "action")

    def __init__(self, action: Callable[[], None], cancelled: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action
        self._cancelled = cancelled
        self._running = threading.RLock()

    def cancel(self) -> None:
        """Withdraw it. An action that has already started has ended when this returns."""
        with self._running:
            if self.action is None:
                return
            self.action = None
        self._cancelled()

    def run(self) -> None:
        """Run the action, unless it was cancelled; an error is logged."""
        with self._running:
            action, self.action = self.action, None
            if action is None:
                return
            try:
                action()
            except Exception:
                _logger.exception("the action of a timeout failed")


class Deadlines:
    """Runs actions when their time has come. The thread starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Deadline]] = []
        self._cancelled = 0  # of those waiting, about
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Run `action` after `seconds`, unless the deadline is cancelled before; raises `DeadlinesClosedError`."""
        deadline = Deadline(action, self._note_cancelled)
        with self._changed:
            if self._closed:
                raise DeadlinesClosedError
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
                thread.start()  # the system may refuse a thread: the next call retries
                self._thread = thread
            entry = (time.monotonic() + seconds, next(self._numbers), deadline)
            heapq.heappush(self._waiting, entry)
            if self._waiting[0] is entry:
                self._changed.notify()
        return deadline

    def _note_cancelled(self) -> None:
        """Remove cancelled entries once they outnumber the others: hardly any deadline is ever reached."""
        with self._changed:
            self._cancelled += 1
            if self._cancelled > max(_FEW, len(self._waiting) // 2):
                self._waiting = [entry for entry in self._waiting if entry[2].action is not None]
                heapq.heapify(self._waiting)
                self._cancelled = 0

    def _watch(self) -> None:
        while (deadline := self._next()) is not None:
            deadline.run()

    def _next(self) -> Deadline | None:
        with self._changed:
            while not self._closed:
                while self._waiting and self._waiting[0][2].action is None:
                    heapq.heappop(self._waiting)
                    self._cancelled -= 1
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(wait)
            return None

    def close(self) -> None:
        """End the thread, and run the remaining actions at once: no other code would."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for _, _, deadline in waiting:
            deadline.run()
