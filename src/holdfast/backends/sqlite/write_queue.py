"""The queue of the writers of one process: one holds the write lock, the others wait their turn.

SQLite has one write lock per file, and connections that wait for it poll. Within a process, polling would be wasteful
and unfair: a polling connection may wait forever while others hand the lock on within microseconds. So all writers of a
process queue here, first in, first out, except the extending thread and the heartbeats of nodes. These go first,
because leases and shares are lost if they wait too long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import StoreUnavailable


class WriteQueue:
    """Admits one writer of this process at a time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._is_taken = False
        self._first: deque[threading.Event] = deque()
        self._waiting: deque[threading.Event] = deque()

    def enter(self, *, first: bool = False) -> None:
        """Wait for the turn, before all others if `first`; raise `StoreUnavailable` after the timeout."""
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
        message = (
            f"a transaction in this process has held the write lock for more than {self._timeout:g} s: "
            "do slow work before the transaction, not inside it"
        )
        raise StoreUnavailable(message)

    def leave(self) -> None:
        """Admit the next writer; may be called from another thread than `enter`."""
        with self._lock:
            line = self._first or self._waiting
            if line:
                line.popleft().set()  # `_is_taken` stays set: no other writer can enter in between
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
