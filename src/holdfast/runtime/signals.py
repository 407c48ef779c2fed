"""Signals that a handler may look at or wait for, from a coroutine or from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Signal:
    """Something that happens at most once: the lease is lost, a cancel is asked."""

    __slots__ = ("_event", "_lock", "_waiting", "was_seen")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.was_seen = False
        """Whether somebody has looked or waited, and knows that it has happened."""

    def set(self) -> None:
        """Let it have happened; callable from any thread."""
        with self._lock:
            self._event.set()
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # a loop that was closed has nobody left who waits
                loop.call_soon_threadsafe(event.set)

    def is_set(self) -> bool:
        """Tell whether it has happened."""
        return self._seen(self._event.is_set())

    __bool__ = is_set

    async def wait(self) -> None:
        """Wait for it in a coroutine."""
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
            with self._lock, contextlib.suppress(ValueError):  # taken out already by `set`
                self._waiting.remove(entry)

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait for it in a thread; False if it has not happened after `timeout` seconds."""
        return self._seen(self._event.wait(timeout))

    def _seen(self, has_happened: bool) -> bool:
        if has_happened:
            self.was_seen = True
        return has_happened
