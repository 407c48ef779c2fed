"""Limits on handlers' transactions, watched by one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreUnavailable

_logger = logging.getLogger("holdfast.sqlite")
_FEW: Final = 32


class Deadline:
    """A function to be called when its time has come, unless it is dropped before."""

    __slots__ = ("_dropped", "action")

    def __init__(self, action: Callable[[], None], dropped: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action
        self._dropped = dropped

    def drop(self) -> None:
        """Take it back."""
        if self.action is not None:
            self.action = None
            self._dropped()


class Deadlines:
    """Calls functions when their time has come. The thread starts with the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Deadline]] = []
        self._dropped = 0  # of those waiting, about
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self, limit: timedelta, action: Callable[[], None]) -> Deadline:
        """Call `action` after `limit`, unless the deadline is dropped before; raises `StoreUnavailable` once closed."""
        deadline = Deadline(action, self._note_dropped)
        with self._changed:
            if self._closed:
                message = "the store was closed while a transaction waited for its turn"
                raise StoreUnavailable(message)
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name=store_thread_name("sqlite-deadlines"), daemon=True)
                thread.start()  # may be refused by the system: then the next one tries again
                self._thread = thread
            entry = (time.monotonic() + limit.total_seconds(), next(self._numbers), deadline)
            heapq.heappush(self._waiting, entry)
            if self._waiting[0] is entry:
                self._changed.notify()
        return deadline

    def _note_dropped(self) -> None:
        """Clear away those that were dropped, once they are more than the others: hardly one ever comes to its time."""
        with self._changed:
            self._dropped += 1
            if self._dropped > max(_FEW, len(self._waiting) // 2):
                self._waiting = [entry for entry in self._waiting if entry[2].action is not None]
                heapq.heapify(self._waiting)
                self._dropped = 0

    def _watch(self) -> None:
        while (deadline := self._next()) is not None:
            _act(deadline)

    def _next(self) -> Deadline | None:
        with self._changed:
            while not self._closed:
                while self._waiting and self._waiting[0][2].action is None:
                    heapq.heappop(self._waiting)
                    self._dropped -= 1
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(wait)
            return None

    def close(self) -> None:
        """End the thread, and before their time the transactions that are still open: nobody else would end them."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for _, _, deadline in waiting:
            _act(deadline)


def _act(deadline: Deadline) -> None:
    action = deadline.action
    if action is not None:
        try:
            action()
        except Exception:
            _logger.exception("a transaction past its limit could not be rolled back")
