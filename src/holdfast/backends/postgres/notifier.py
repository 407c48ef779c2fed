"""Notifications by LISTEN and NOTIFY: they only improve latency.

NOTIFY takes a lock on the whole database when its transaction commits, so it is never part of a transaction that writes
jobs: it goes over a separate connection, after the commit. Nor does it wait for the disk (losing a notification in a
crash does no harm), so the lock is held for some 30 µs. The first notification is sent at once; those of the next 5 ms
are sent as one, and while they keep coming, the pause doubles up to 50 ms. With a constant pause of 50 ms, a job that
came 20 ms after another waited 27 ms (median) for its worker.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import sql

from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.notify_listener import Listener
from holdfast.backends.postgres.notify_sender import NotifyConnection
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreError

_AGAIN_AFTER = 1.0
_logger = logging.getLogger("holdfast.postgres")


class PostgresNotifier:
    """Notifies this process directly, and other processes through the server."""

    def __init__(self, location: PostgresLocation) -> None:
        self._location = location
        self._channel = f"holdfast_{location.schema}"
        self._own_mark = secrets.token_hex(8)
        # Two statements in one message are one transaction, with and without a pooler.
        notify = sql.SQL("set local synchronous_commit = off; notify {}, {}")
        command = notify.format(sql.Identifier(self._channel), sql.Literal(self._own_mark)).as_bytes(None)
        self._connection = NotifyConnection(location, command)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._sender: threading.Thread | None = None
        self._threads: list[threading.Thread] = []  # those that may still run

    def notify(self) -> None:
        """Wake the listeners of this process, and notify other processes: at once if possible, else by the sender."""
        self._wake()
        if self._connection.try_now():
            return
        self._asked.set()
        if self._sender is None:
            self._start_sender()

    def _wake(self) -> None:
        for wake in tuple(self._listeners):
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - the notifying call has committed, and must not fail
                _logger.debug("dropped a listener that cannot be woken: %s", error)
                self._drop(wake)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each notification until the returned function is called."""
        with self._lock:
            self._listeners.append(wake)
            if self._listener is None:
                self._listener = Listener(self._location, self._channel, self._own_mark, self._wake)
                self._keep(self._listener.thread)
        return lambda: self._drop(wake)

    def _drop(self, wake: Callable[[], None]) -> None:
        """Remove a listener; after the last one, stop the listening thread."""
        with self._lock:
            if wake in self._listeners:
                self._listeners.remove(wake)
            listener = None if self._listeners else self._listener
            if listener is not None:
                self._listener = None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Remove all listeners, and signal the threads to end."""
        with self._lock:
            self._listeners.clear()
            listener, self._listener = self._listener, None
        self._stopping.set()
        self._asked.set()
        if listener is not None:
            listener.close()
        if self._sender is None:  # else the sender closes the connection: it may be waiting for a reply on it
            self._connection.close()

    async def ended(self, within: float) -> None:
        """Wait until the threads have ended, after `close`; at most `within` seconds."""
        threads = [thread for thread in self._threads if thread.is_alive()]
        if threads:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await asyncio.to_thread(_join, threads, within)

    def _start_sender(self) -> None:
        with self._lock:
            if self._sender is None and not self._stopping.is_set():
                sender = threading.Thread(target=self._send, name=store_thread_name("postgres-notify"), daemon=True)
                try:
                    sender.start()
                except RuntimeError as error:  # no thread available now; the next notification starts one
                    _logger.debug("could not notify other processes: %s", error)
                    return
                self._sender = sender
                self._keep(sender)

    def _keep(self, thread: threading.Thread) -> None:
        self._threads = [thread, *(other for other in self._threads if other.is_alive())]

    def _send(self) -> None:
        while not self._stopping.is_set():
            self._asked.wait()
            self._stopping.wait(self._connection.rest)
            self._asked.clear()
            if self._stopping.is_set():
                break
            try:
                self._connection.send()
            except (psycopg.Error, StoreError) as error:
                _logger.debug("could not notify other processes: %s", error)
                self._stopping.wait(_AGAIN_AFTER)
        self._connection.close()


def _join(threads: list[threading.Thread], within: float) -> None:
    until = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
