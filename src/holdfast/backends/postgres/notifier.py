"""Wake-ups by LISTEN and NOTIFY: hints, never needed for a result.

NOTIFY takes a lock of the whole database when its transaction commits, so it is never part of a transaction that writes
jobs: a thread of its own sends it, at once for the first hint and then at most every 50 ms, however many there were.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable

import psycopg

from holdfast.backends.postgres.connecting import connect_blocking, drop, has_gone
from holdfast.backends.postgres.listening import Listener
from holdfast.backends.postgres.location import Location
from holdfast.backends.postgres.patience import bounded_blocking
from holdfast.errors import StoreError

AT_MOST_EVERY = 0.05
_AGAIN_AFTER = 1.0
_PATIENCE = 5.0
_logger = logging.getLogger("holdfast.postgres")


class PostgresNotifier:
    """Hints within the process at once, to other processes through the server."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._channel = f"holdfast_{location.schema}"
        self._own_mark = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._sender: threading.Thread | None = None

    def notify(self) -> None:
        """Wake the listeners of this process, and let the sender tell the others."""
        self._wake()
        self._asked.set()
        if self._sender is None:
            self._start_sender()

    def _wake(self) -> None:
        for wake in tuple(self._listeners):
            wake()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each hint until the returned function is called."""
        with self._lock:
            self._listeners.append(wake)
            if self._listener is None:
                self._listener = Listener(self._location, self._channel, self._own_mark, self._wake)

        def unlisten() -> None:
            with self._lock:
                if wake in self._listeners:
                    self._listeners.remove(wake)
                listener = None if self._listeners else self._listener
                if listener is not None:
                    self._listener = None
            if listener is not None:
                listener.close()

        return unlisten

    def close(self) -> None:
        """Forget all listeners, and end the threads."""
        with self._lock:
            self._listeners.clear()
            listener, self._listener = self._listener, None
            sender, self._sender = self._sender, None
        self._stopping.set()
        self._asked.set()
        for thread in (listener, sender):
            if isinstance(thread, Listener):
                thread.close()
            elif thread is not None and thread is not threading.current_thread():
                thread.join()

    def _start_sender(self) -> None:
        with self._lock:
            if self._sender is None and not self._stopping.is_set():
                self._sender = threading.Thread(target=self._send, name="holdfast-postgres-notify", daemon=True)
                self._sender.start()

    def _send(self) -> None:
        connection = None
        while not self._stopping.is_set():
            self._asked.wait()
            self._asked.clear()
            if self._stopping.is_set():
                break
            sent_at = time.monotonic()
            try:
                if connection is None or has_gone(connection):
                    if connection is not None:
                        drop(connection)
                    connection = connect_blocking(self._location)
                with bounded_blocking(connection, _PATIENCE):
                    connection.execute(b"select pg_notify(%s, %s)", (self._channel, self._own_mark))
            except (psycopg.Error, StoreError) as error:
                _logger.debug("a hint to other processes was not sent: %s", error)
                if connection is not None:
                    drop(connection)
                    connection = None
                self._stopping.wait(_AGAIN_AFTER)
            self._stopping.wait(max(0.0, sent_at + AT_MOST_EVERY - time.monotonic()))
        if connection is not None:
            drop(connection)
