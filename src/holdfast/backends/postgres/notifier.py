"""Notifications by LISTEN and NOTIFY: they only improve latency.

NOTIFY takes a lock on the whole database when its transaction commits, so it is never part of a transaction that writes
jobs: it goes over a separate connection, after the commit. Nor does it wait for the disk (losing a notification in a
crash does no harm), so the lock is held for some 30 µs. The first notification is sent at once; those of the next 5 ms
are sent as one, and while they keep coming, the pause doubles up to 50 ms. With a constant pause of 50 ms, a job that
came 20 ms after another waited 27 ms (median) for its worker.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection

import psycopg
from psycopg import sql

from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.notify_listener import Listener, NotificationKind
from holdfast.backends.postgres.notify_sender import NotifyConnection
from holdfast.errors import StoreError
from holdfast.store.local_notifier import EXPECTED_FOR, LocalNotifier

_AGAIN_AFTER = 1.0
# The statements in one message are one transaction, with and without a pooler.
_COMMAND = b"set local synchronous_commit = off"


class PostgresNotifier(LocalNotifier):
    """Notifies this process directly, and other processes through the server."""

    def __init__(self, location: PostgresLocation) -> None:
        channel = f"holdfast_{location.schema}"
        own_mark = secrets.token_hex(8)
        super().__init__("postgres", Listener(location, channel, own_mark, self._hear).run)
        notify = sql.SQL("; notify {}, {}")
        self._commands = {
            kind: notify.format(sql.Identifier(channel), sql.Literal(f"{kind} {own_mark}".lstrip())).as_bytes(None)
            for kind in (NotificationKind.JOBS, NotificationKind.ENDS, NotificationKind.EXPECTED)
        }
        self._connection = NotifyConnection(location)
        self._expected_until = 0.0  # until then, something waits for ends of jobs in another process
        self._asked = threading.Event()
        self._pending: set[NotificationKind] = set()
        self._closing = threading.Event()
        self._has_sender = False

    def notify(self) -> None:
        """Wake the listeners of this process, and notify other processes: at once if possible, else by the sender."""
        super().notify()
        self._tell(NotificationKind.JOBS)

    def notify_ends(self) -> None:
        """Wake those that wait for ends in this process, and notify other processes if one of them waits."""
        super().notify_ends()
        if time.monotonic() < self._expected_until:
            self._tell(NotificationKind.ENDS)

    def expect_ends(self) -> None:
        """Announce to other processes that something waits for ends here."""
        self._tell(NotificationKind.EXPECTED)

    def _hear(self, kinds: Collection[str]) -> None:
        if NotificationKind.EXPECTED in kinds:
            self._expected_until = time.monotonic() + EXPECTED_FOR
        if NotificationKind.ENDS in kinds:
            super().notify_ends()
        if NotificationKind.JOBS in kinds:
            super().notify()

    def _tell(self, kind: NotificationKind) -> None:
        if self._connection.try_now(_COMMAND + self._commands[kind]):
            return
        with self._lock:
            self._pending.add(kind)
        self._asked.set()
        if not self._has_sender:
            self._start_sender()

    def _start_sender(self) -> None:
        with self._lock:
            if not self._has_sender and not self._closing.is_set():
                try:
                    self._start("notify", self._send)
                except RuntimeError as error:  # no thread available now; the next notification starts one
                    self._logger.debug("could not notify other processes: %s", error)
                else:
                    self._has_sender = True

    def close(self) -> None:
        """Remove all listeners, and request the end of the threads."""
        super().close()
        self._closing.set()
        self._asked.set()
        if not self._has_sender:  # else the sender closes the connection: it may be waiting for a reply on it
            self._connection.close()

    def _send(self) -> None:
        while not self._closing.is_set():
            self._asked.wait()
            self._closing.wait(self._connection.rest)
            self._asked.clear()
            if self._closing.is_set():
                break
            with self._lock:
                kinds, self._pending = self._pending, set()
            try:
                self._connection.send(_COMMAND + b"".join(self._commands[kind] for kind in kinds))
            except (psycopg.Error, StoreError) as error:
                self._logger.debug("could not notify other processes: %s", error)
                self._closing.wait(_AGAIN_AFTER)
        self._connection.close()
