"""Notifications: immediate within the process, and across processes by polling `data_version`.

SQLite cannot call another process. But `pragma data_version` of a connection changes whenever another connection has
committed; reading it takes about 2 µs and no file access. So a thread polls it every 5 ms while there is a listener:
that is the longest delay of a notification from another process.

The version also changes with the commits of this process. Those that matter to others here are followed by `notify`;
the rest would only wake this process for its own writes. A commit inside `unheard` is distinguished from commits of
others by two connections, the polling one and the committing one, whose own commits do not change its `data_version`:

```text
   committing  begin ── its version: b ──────────── commit ───────────── still b? then no other connection has
   polling            └ no change until here                └ changed ┘  committed: the change is this commit
```
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from holdfast.backends.sqlite.connection import Connection
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreError

LOOK_EVERY = 0.005
_AGAIN_AFTER = 1.0
_logger = logging.getLogger("holdfast.sqlite")


class _Watch:
    """A connection that polls for commits of other connections."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.lock = threading.Lock()
        self.is_open = True
        self._raw = raw
        self._seen = _version(raw)

    def has_moved(self) -> bool:
        """Return whether another connection has committed since the last call; hold the lock."""
        before, self._seen = self._seen, _version(self._raw)
        return before != self._seen

    def beside(self, raw: sqlite3.Connection) -> tuple[bool, int] | None:
        """Return whether another connection has committed, and then the version that `raw` sees; hold the lock.

        None if a version cannot be read: that must not fail a commit.
        """
        if not self.is_open:
            return None
        try:
            return self.has_moved(), _version(raw)
        except sqlite3.Error:
            return None


class SqliteNotifier:
    """Notifies listeners of new jobs and events; `connect` None means that no other process can write."""

    def __init__(self, connect: Callable[[], Connection] | None) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._watch_now: _Watch | None = None

    def notify(self) -> None:
        """Wake the listeners of this process; other processes see the commit itself."""
        for wake in tuple(self._listeners):
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - a listener's error must not reach the caller
                _logger.debug("dropped a listener that cannot be woken: %s", error)
                with contextlib.suppress(ValueError):
                    self._listeners.remove(wake)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each notification until the returned function is called."""
        with self._lock:
            self._listeners.append(wake)
            if self._watcher is None and self._connect is not None:
                self._stop = threading.Event()
                self._watcher = threading.Thread(
                    target=self._watch,
                    args=(self._connect, self._stop),
                    name=store_thread_name("sqlite-watch"),
                    daemon=True,
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
        """Remove all listeners and stop polling."""
        with self._lock:
            self._listeners.clear()
            self._end_watch()

    @contextmanager
    def unheard(self, connection: Connection) -> Generator[None]:
        """Wake no listener for the commit of this connection; enter inside the transaction, leave after its commit."""
        watch = self._watch_now
        if watch is None:
            yield
            return
        has_moved = True  # if unknown: a needless notification does less harm than a missing one
        try:
            with watch.lock:
                before = watch.beside(connection.raw)
                try:
                    yield
                finally:
                    after = watch.beside(connection.raw)
                    if before is not None and after is not None:
                        has_moved = before[0] or after[1] != before[1]
        finally:
            if has_moved:
                self.notify()

    def _watch(self, connect: Callable[[], Connection], stop: threading.Event) -> None:
        """Poll until `stop` is set; an error only delays notifications, so it is logged and polling starts again."""
        while not stop.is_set():
            try:
                connection = connect()
                try:
                    self._look(connection.raw, stop)
                finally:
                    connection.close()
            except (sqlite3.Error, StoreError) as error:
                _logger.warning("notifications from other processes are delayed: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _look(self, raw: sqlite3.Connection, stop: threading.Event) -> None:
        watch = self._watch_now = _Watch(raw)
        try:
            while not stop.wait(LOOK_EVERY):
                with watch.lock:
                    has_moved = watch.has_moved()
                if has_moved:
                    self.notify()
        finally:
            self._watch_now = None
            with watch.lock:
                watch.is_open = False


def _version(raw: sqlite3.Connection) -> int:
    version: int = raw.execute("pragma data_version").fetchone()[0]
    return version
