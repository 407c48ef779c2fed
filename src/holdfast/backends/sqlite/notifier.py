"""Wake-ups: at once within the process, and for others by watching `data_version`.

SQLite has no way to call another process. But `pragma data_version` of a connection changes whenever another one has
committed; reading it costs about two microseconds and touches no file. So a thread looks every 5 ms while
somebody listens, which is what another process's enqueue waits for at most.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable

from holdfast.backends.sqlite.connection import Connection
from holdfast.errors import StoreError

LOOK_EVERY = 0.005
_AGAIN_AFTER = 1.0
_logger = logging.getLogger("holdfast.sqlite")


class SqliteNotifier:
    """Hints of new work; `connect` None means that nobody outside this process can write."""

    def __init__(self, connect: Callable[[], Connection] | None) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def notify(self) -> None:
        """Wake the listeners of this process; other processes see the commit itself."""
        for wake in tuple(self._listeners):
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - a hint never fails whoever gives it
                _logger.debug("a listener that cannot be woken is dropped: %s", error)
                with contextlib.suppress(ValueError):
                    self._listeners.remove(wake)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each hint until the returned function is called."""
        with self._lock:
            self._listeners.append(wake)
            if self._watcher is None and self._connect is not None:
                self._stop = threading.Event()
                self._watcher = threading.Thread(
                    target=self._watch, args=(self._connect, self._stop), name="holdfast-sqlite-watch", daemon=True
                )
                self._watcher.start()

        def unlisten() -> None:
            with self._lock:
                if wake in self._listeners:
                    self._listeners.remove(wake)
                if not self._listeners:
                    self._end_watch()

        return unlisten

    def _end_watch(self) -> None:
        self._stop.set()
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join()

    def close(self) -> None:
        """Forget all listeners."""
        with self._lock:
            self._listeners.clear()
            self._end_watch()

    def _watch(self, connect: Callable[[], Connection], stop: threading.Event) -> None:
        """Look until told to stop; trouble costs only wake-ups, so it is logged and tried again."""
        while not stop.is_set():
            try:
                connection = connect()
                try:
                    self._look(connection.raw, stop)
                finally:
                    connection.close()
            except (sqlite3.Error, StoreError) as error:
                _logger.warning("wake-ups from other processes are off for a moment: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _look(self, raw: sqlite3.Connection, stop: threading.Event) -> None:
        seen = None
        while not stop.wait(LOOK_EVERY):
            version = raw.execute("pragma data_version").fetchone()[0]
            if version != seen:
                if seen is not None:
                    self.notify()
                seen = version
