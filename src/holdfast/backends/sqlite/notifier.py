"""Notifications: immediate within the process, and across processes by polling `data_version`.

SQLite cannot call another process. But `pragma data_version` of a connection changes whenever another connection has
committed; reading it takes about 2 µs and no file access. So a thread polls it every 5 ms while there is a listener:
that is the longest delay of a notification from another process.

The version also changes with the commits of this process. Those that matter to others here are followed by `notify`;
the rest would only wake this process for its own writes. A commit inside `without_waking` is distinguished from those
of others by two connections, the polling one and the committing one, whose own commits do not change its
`data_version`:

```text
   committing  begin ── its version: b ──────────── commit ───────────── still b? then no other connection has
   polling            └ no change until here                └ changed ┘  committed: the change is this commit
```
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial

from holdfast.backends.sqlite.connection import Connection
from holdfast.errors import StoreError
from holdfast.store.local_notifier import LocalNotifier, StopSignal

LOOK_EVERY = 0.005
_AGAIN_AFTER = 1.0


class _WatchedFile:
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


class SqliteNotifier(LocalNotifier):
    """Notifies listeners of new jobs and events; `connect` None means that no other process can write.

    `notify` wakes the listeners of this process; other processes see the commit itself.
    """

    def __init__(self, connect: Callable[[], Connection] | None) -> None:
        super().__init__("sqlite", None if connect is None else partial(self._poll, connect))
        self._watch_now: _WatchedFile | None = None

    def close(self) -> None:
        """Remove all listeners, and end the thread."""
        super().close()
        self.join()

    @contextmanager
    def without_waking(self, connection: Connection) -> Generator[None]:
        """Wake no listener for the commit of this connection; enter inside the transaction, leave after its commit."""
        watch = self._watch_now
        if watch is None or not watch.is_open:
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
                self.notify_ends()

    def _poll(self, connect: Callable[[], Connection], stop: StopSignal) -> None:
        """Poll until `stop` is set; an error only delays notifications, so it is logged and polling starts again."""
        while not stop.is_set():
            try:
                with closing(connect()) as connection:
                    self._look(connection.raw, stop)
            except (sqlite3.Error, StoreError) as error:
                self._logger.warning("notifications from other processes are delayed: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _look(self, raw: sqlite3.Connection, stop: StopSignal) -> None:
        watch = _WatchedFile(raw)
        with self._lock:
            if not stop.is_set():  # else another thread may poll already
                self._watch_now = watch
        self.notify()  # for what was committed after the caller began to listen and before the first look
        self.notify_ends()
        try:
            while not stop.wait(LOOK_EVERY):
                with watch.lock:
                    has_moved = watch.has_moved()
                if has_moved:
                    self.notify()
                    self.notify_ends()  # any commit may have ended a job
        finally:
            with watch.lock:
                watch.is_open = False


def _version(raw: sqlite3.Connection) -> int:
    version: int = raw.execute("pragma data_version").fetchone()[0]
    return version
