"""Notifications by LISTEN and NOTIFY: they only improve latency.

NOTIFY takes a lock on the whole database when its transaction commits, so it is never part of a transaction that writes
jobs: it goes over a separate connection, after the commit. Nor does it wait for the disk (losing a notification in a
crash does no harm), so the lock is held for some 30 µs. The first notification is sent at once; those of the next 5 ms
are sent as one, and while they keep coming, the pause doubles up to 50 ms. With a constant pause of 50 ms, a job that
came 20 ms after another waited 27 ms (median) for its worker.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

from psycopg import sql

from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.notify_listener import Listener, NotificationKind
from holdfast.backends.postgres.notify_sender import NotifyConnection
from holdfast.store.local_notifier import EXPECTED_FOR
from holdfast.store.remote_notifier import RemoteNotifier


class PostgresNotifier(RemoteNotifier):
    """Notifies this process directly, and other processes through the server."""

    def __init__(self, location: PostgresLocation) -> None:
        channel = f"holdfast_{location.schema}"
        own_mark = secrets.token_hex(8)
        notify = sql.SQL("; notify {}, {}")
        commands: dict[str, bytes] = {
            kind: notify.format(sql.Identifier(channel), sql.Literal(f"{kind} {own_mark}".lstrip())).as_bytes(None)
            for kind in (NotificationKind.JOBS, NotificationKind.ENDS, NotificationKind.EXPECTED)
        }
        listener = Listener(location, channel, own_mark, self._on_received)
        super().__init__("postgres", listener.run, NotifyConnection(location, commands))
        self._expected_until = 0.0  # until then, something waits for ends of jobs in another process

    def notify(self) -> None:
        """Wake the listeners of this process, and notify other processes."""
        super().notify()
        self.notify_others(NotificationKind.JOBS)

    def notify_ends(self) -> None:
        """Wake those that wait for ends in this process, and notify other processes if one of them waits."""
        super().notify_ends()
        if time.monotonic() < self._expected_until:
            self.notify_others(NotificationKind.ENDS)

    def expect_ends(self) -> None:
        """Announce to other processes that something waits for ends here."""
        self.notify_others(NotificationKind.EXPECTED)

    def _on_received(self, kinds: Collection[str]) -> None:
        if NotificationKind.EXPECTED in kinds:
            self._expected_until = time.monotonic() + EXPECTED_FOR
        if NotificationKind.ENDS in kinds:
            super().notify_ends()
        if NotificationKind.JOBS in kinds:
            super().notify()
