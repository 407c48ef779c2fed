"""A lock between threads that admits its waiters in the order in which they came, except those that go first.

A lock that waiters poll, as connections to a SQLite file do, is wasteful and unfair: one may wait forever while others
hand the lock on within microseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager


class PriorityLock:
    """Admits one thread at a time. After `timeout` seconds a wait ends with the exception that `expired` returns."""

    def __init__(self, timeout: float, expired: Callable[[], Exception]) -> None:
        self._timeout = timeout
        self._expired = expired
        self._lock = threading.Lock()
        self._is_taken = False
        self._first: deque[threading.Event] = deque()
        self._waiting: deque[threading.Event] = deque()

    def enter(self, *, first: bool = False) -> None:
        """Wait for the turn, before all others if `first`."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Event()
            line = self._first if first else self._waiting
            line.append(turn)
        if turn.wait(self._timeout):
            return
        with self._lock:
            if turn.is_set():  # the turn came between the timeout and the lock
                return
            line.remove(turn)
        raise self._expired()

    def leave(self) -> None:
        """Admit the next one; may be called from another thread than `enter`."""
        with self._lock:
            line = self._first or self._waiting
            if line:
                line.popleft().set()  # `_is_taken` stays set: no other can enter in between
            else:
                self._is_taken = False

    @contextmanager
    def passage(self, *, first: bool = False) -> Generator[None]:
        """Enter, and leave at the end of the block."""
        self.enter(first=first)
        try:
            yield
        finally:
            self.leave()
