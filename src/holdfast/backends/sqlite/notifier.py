"""Wake-ups: at once within the process, and for others by watching `data_version`.

SQLite has no way to call another process. But `pragma data_version` of a connection changes whenever another one has
committed; reading it costs about two microseconds and touches no file. So a thread looks every 5 ms while
somebody listens, which is what another process's enqueue waits for at most.

It changes with the commits of our own process, too. Those that others here should know of are followed by `notify`; the
rest would only wake us for what we did ourselves. A commit that is to be `unheard` is told from those of others by two
connections, the one that looks and the one that commits, whose own `data_version` is moved by others alone:

```text
   committing  begin ── its version: b ──────────── commit ───────────────── still b? then nobody else has committed
   looking            └ nothing new until here                └ moved ────┘  since then, and it was us who moved it
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
    """A connection that looks for commits of others."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.lock = threading.Lock()
        self.is_open = True
        self._raw = raw
        self._seen = _version(raw)

    def has_moved(self) -> bool:
        """Tell whether anybody has committed since the last look; under the lock."""
        before, self._seen = self._seen, _version(self._raw)
        return before != self._seen

    def beside(self, raw: sqlite3.Connection) -> tuple[bool, int] | None:
        """Tell whether anybody has committed, and the version that another connection sees, read later.

        None if it cannot be told: no commit fails of that. Under the lock.
        """
        if not self.is_open:
            return None
        try:
            return self.has_moved(), _version(raw)
        except sqlite3.Error:
            return None


class SqliteNotifier:
    """Hints of new work; `connect` None means that nobody outside this process can write."""

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
        """Forget all listeners."""
        with self._lock:
            self._listeners.clear()
            self._end_watch()

    @contextmanager
    def unheard(self, connection: Connection) -> Generator[None]:
        """Wake nobody here by what this connection commits inside; enter it in the transaction, leave it after it."""
        watch = self._watch_now
        if watch is None:
            yield
            return
        has_moved = True  # where it cannot be told, a hint too many does less harm than one too few
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
