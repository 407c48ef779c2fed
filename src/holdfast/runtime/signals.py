"""One-time signals that a handler can check or wait for, in a coroutine or in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Signal:
    """An event that happens at most once, such as the loss of a lease or a request to cancel."""

    __slots__ = ("_event", "_lock", "_waiting", "was_seen")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.was_seen = False
        """Whether a check or a wait has observed that the signal is set."""

    def set(self) -> None:
        """Set the signal; may be called from any thread."""
        with self._lock:
            self._event.set()
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed: no coroutine waits in it any more
                loop.call_soon_threadsafe(event.set)

    def is_set(self) -> bool:
        """Return whether the signal is set."""
        return self._seen(self._event.is_set())

    __bool__ = is_set

    async def wait(self) -> None:
        """Wait for the signal in a coroutine."""
        with self._lock:
            if self._event.is_set():
                self.was_seen = True
                return
            event = asyncio.Event()
            entry = (asyncio.get_running_loop(), event)
            self._waiting.append(entry)
        try:
            await event.wait()
            self.was_seen = True
        finally:
            with self._lock, contextlib.suppress(ValueError):  # already removed by `set`
                self._waiting.remove(entry)

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait for the signal in a thread; return False if it is not set after `timeout` seconds."""
        return self._seen(self._event.wait(timeout))

    def _seen(self, is_set: bool) -> bool:
        if is_set:
            self.was_seen = True
        return is_set
