"""Notify the listeners of this process, and run the thread that watches for notifications from other processes.

The thread runs while there is a listener. A store that other processes can write to passes its function: it runs until
its `StopSignal` is set, and calls `notify` of this class for each notification that it receives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from holdfast.concurrency.store_threads import store_thread_name

EXPECTED_FOR = 6.0
"""Seconds for which an announced waiter is notified of ends; it announces itself again before."""


class StopSignal(threading.Event):
    """Set to end a thread, which can also wait for it together with a socket: the descriptor is readable then."""

    def __init__(self) -> None:
        super().__init__()
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            weakref.finalize(self, os.close, descriptor).atexit = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._read

    def set(self) -> None:
        """Request the end of the thread, without waiting: it may be connecting to a server that does not answer."""
        super().set()
        os.write(self._write, b"x")


class LocalNotifier:
    """`Notifier` within a process. `watch` None: no other process can write to the store."""

    def __init__(self, store: str, watch: Callable[[StopSignal], None] | None) -> None:
        self._store = store
        self._watch = watch
        self._logger = logging.getLogger(f"holdfast.{store}")
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._waiters: list[Callable[[], None]] = []
        self._stop: StopSignal | None = None
        self._threads: list[threading.Thread] = []  # those that may still run

    def notify(self) -> None:
        """Wake the listeners of this process; one that cannot be woken is removed."""
        self._wake(self._listeners)

    def notify_ends(self) -> None:
        """Wake those that wait for the end of a job in this process."""
        if self._waiters:
            self._wake(self._waiters)

    def expect_ends(self) -> None:
        """Do nothing: within a process, and where others see each commit, ends are always notified of."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each notification until the returned function is called."""
        return self._add(self._listeners, wake)

    def listen_ends(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each notification of ends until the returned function is called."""
        return self._add(self._waiters, wake)

    def _wake(self, listeners: list[Callable[[], None]]) -> None:
        for wake in tuple(listeners):
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - the notifying call has committed, and must not fail
                self._logger.debug("dropped a listener that cannot be woken: %s", error)
                self._remove(listeners, wake)

    def _add(self, listeners: list[Callable[[], None]], wake: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            listeners.append(wake)
            if self._stop is None and self._watch is not None:
                stop = StopSignal()
                self._start("watch", partial(self._watch, stop))
                self._stop = stop
        return partial(self._remove, listeners, wake)

    def _remove(self, listeners: list[Callable[[], None]], wake: Callable[[], None]) -> None:
        """Remove a listener; after the last one, request the end of the watching thread."""
        with self._lock:
            if wake in listeners:
                listeners.remove(wake)
            if not self._listeners and not self._waiters:
                self._end_watch()

    def _end_watch(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop.set()

    def close(self) -> None:
        """Remove all listeners, and request the end of the threads."""
        with self._lock:
            self._listeners.clear()
            self._waiters.clear()
            self._end_watch()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        """Start a thread; hold the lock. Raises `RuntimeError` if none is available now."""
        thread = threading.Thread(target=run, name=store_thread_name(f"{self._store}-{name}"), daemon=True)
        thread.start()
        self._threads = [thread, *(other for other in self._threads if other.is_alive())]

    def join(self, within: float | None = None) -> None:
        """Wait until the threads have ended, after `close`; at most `within` seconds."""
        until = None if within is None else time.monotonic() + within
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if until is None else max(0.0, until - time.monotonic()))

    async def ended(self, within: float) -> None:
        """Do the same without blocking the event loop."""
        if any(thread.is_alive() for thread in self._threads):
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.to_thread(self.join, within)
