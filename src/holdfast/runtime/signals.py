"""One-time signals that a handler can check or wait for, in a coroutine or in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from functools import partial


class Signal:
    """An event that happens at most once, such as the loss of a lease or a request to cancel."""

    __slots__ = ("_is_set", "_lock", "_waiting", "was_seen")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: list[Callable[[], object]] = []
        self.was_seen = False
        """Whether a check or a wait has observed that the signal is set."""

    def set(self) -> None:
        """Set the signal; may be called from any thread."""
        with self._lock:
            self._is_set = True
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed: no coroutine waits in it any more
                wake()

    def is_set(self) -> bool:
        """Return whether the signal is set."""
        return self._seen(self._is_set)

    __bool__ = is_set

    async def wait(self) -> None:
        """Wait for the signal in a coroutine."""
        event = asyncio.Event()
        with self._woken_by(partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)):
            if not self._is_set:
                await event.wait()
            self.was_seen = True

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait for the signal in a thread; return False if it is not set after `timeout` seconds."""
        event = threading.Event()
        with self._woken_by(event.set):
            return self._seen(self._is_set or event.wait(timeout))

    @contextlib.contextmanager
    def _woken_by(self, wake: Callable[[], object]) -> Generator[None]:
        """Call `wake` if the signal is set during the block."""
        with self._lock:
            self._waiting.append(wake)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):  # already removed by `set`
                self._waiting.remove(wake)

    def _seen(self, is_set: bool) -> bool:
        if is_set:
            self.was_seen = True
        return is_set
