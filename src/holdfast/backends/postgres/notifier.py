"""Wake-ups by LISTEN and NOTIFY: hints, never needed for a result.

NOTIFY takes a lock of the whole database when its transaction commits, so it is never part of a transaction that writes
jobs: it goes over a line of its own, after the commit. Nor does it wait for the disk (a hint that a crash takes away is
missed by nobody), so the lock is held for some 30 µs. The first hint goes at once; those that come within the next 5 ms
go together, and while they keep coming, the pause doubles up to 50 ms. With a pause of always 50 ms, a job that came
20 ms after another waited 27 ms for its worker, the median.
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
    """Hints within the process at once, to other processes through the server."""

    def __init__(self, location: PostgresLocation) -> None:
        self._location = location
        self._channel = f"holdfast_{location.schema}"
        self._own_mark = secrets.token_hex(8)
        # Two statements sent as one are one transaction, on a server and behind a pooler alike.
        notify = sql.SQL("set local synchronous_commit = off; notify {}, {}")
        command = notify.format(sql.Identifier(self._channel), sql.Literal(self._own_mark)).as_bytes(None)
        self._line = NotifyConnection(location, command)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._sender: threading.Thread | None = None
        self._threads: list[threading.Thread] = []  # that may not have ended yet

    def notify(self) -> None:
        """Wake the listeners of this process, and tell the others, at once if possible, else by the sender."""
        self._wake()
        if self._line.try_now():
            return
        self._asked.set()
        if self._sender is None:
            self._start_sender()

    def _wake(self) -> None:
        for wake in tuple(self._listeners):
            try:
                wake()
            except Exception as error:  # noqa: BLE001 - a hint never fails whoever gives it: its commit stands
                _logger.debug("a listener that cannot be woken is dropped: %s", error)
                self._drop(wake)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each hint until the returned function is called."""
        with self._lock:
            self._listeners.append(wake)
            if self._listener is None:
                self._listener = Listener(self._location, self._channel, self._own_mark, self._wake)
                self._keep(self._listener.thread)
        return lambda: self._drop(wake)

    def _drop(self, wake: Callable[[], None]) -> None:
        """Call `wake` no more; with the last of them, end to listen."""
        with self._lock:
            if wake in self._listeners:
                self._listeners.remove(wake)
            listener = None if self._listeners else self._listener
            if listener is not None:
                self._listener = None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Forget all listeners, and tell the threads to end."""
        with self._lock:
            self._listeners.clear()
            listener, self._listener = self._listener, None
        self._stopping.set()
        self._asked.set()
        if listener is not None:
            listener.close()
        if self._sender is None:  # else it is the sender that closes the line: it may be waiting for an answer there
            self._line.close()

    async def ended(self, within: float) -> None:
        """Wait until the threads have ended, after `close`; at most so many seconds."""
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
                except RuntimeError as error:  # the system has no thread to give: perhaps for the next hint
                    _logger.debug("a hint to other processes was not sent: %s", error)
                    return
                self._sender = sender
                self._keep(sender)

    def _keep(self, thread: threading.Thread) -> None:
        self._threads = [thread, *(other for other in self._threads if other.is_alive())]

    def _send(self) -> None:
        while not self._stopping.is_set():
            self._asked.wait()
            self._stopping.wait(self._line.rest)
            self._asked.clear()
            if self._stopping.is_set():
                break
            try:
                self._line.send()
            except (psycopg.Error, StoreError) as error:
                _logger.debug("a hint to other processes was not sent: %s", error)
                self._stopping.wait(_AGAIN_AFTER)
        self._line.close()


def _join(threads: list[threading.Thread], within: float) -> None:
    until = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
