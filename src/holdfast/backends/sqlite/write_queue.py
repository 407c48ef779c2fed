"""The gate through which the writers of one process pass one by one.

SQLite has one write lock per file, and those who wait for it poll. Within a process that would be waste, and unfair:
whoever stands at SQLite's own door while others hand the lock on within microseconds may wait for ever. So all writers
of a process queue here, first come, first served, but for the extending thread and the reports of nodes, which go
before all others: jobs and shares are lost when they wait too long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import StoreUnavailable


class WriteQueue:
    """Lets one writer of this process through at a time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._is_taken = False
        self._first: deque[threading.Event] = deque()
        self._waiting: deque[threading.Event] = deque()

    def enter(self, *, first: bool = False) -> None:
        """Wait for the turn, before all others if `first`; raise `StoreUnavailable` when it does not come."""
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
            if turn.is_set():  # it came at the last moment
                return
            line.remove(turn)
        message = (
            f"a transaction in this process has held the write lock for more than {self._timeout:g} s: "
            "do slow work before the transaction, not inside it"
        )
        raise StoreUnavailable(message)

    def leave(self) -> None:
        """Let the next one through; may be called from another thread than `enter`."""
        with self._lock:
            line = self._first or self._waiting
            if line:
                line.popleft().set()  # handed over: nobody can slip in between
            else:
                self._is_taken = False

    @contextmanager
    def passage(self, *, first: bool = False) -> Generator[None]:
        """Enter, and leave at the end."""
        self.enter(first=first)
        try:
            yield
        finally:
            self.leave()
