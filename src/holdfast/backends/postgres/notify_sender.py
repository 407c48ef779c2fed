"""The connection that sends notifications to other processes.

The calling thread sends the notification itself if the connection is free: waking a sender thread takes longer than
sending, and that thread would then compete for the interpreter lock. The reply is read before the next notification.
Whatever has to wait is left to the sender thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import psycopg
from psycopg import Connection

from holdfast.backends.postgres.connecting import connect_blocking, drop, has_gone
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import await_answers, take_answers
from holdfast.errors import StoreUnavailable

_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05
_TIMEOUT = 5.0
# The statements in one message are one transaction, with and without a pooler.
_NO_SYNC = b"set local synchronous_commit = off"


class NotifyConnection:
    """A connection for notifications. A pause follows each command, a longer one if a notification had to wait."""

    def __init__(self, location: PostgresLocation, commands: Mapping[str, bytes]) -> None:
        self._location = location
        self._commands = commands
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._is_answered = True
        self._pause = _SHORTEST_PAUSE
        self._rests_until = 0.0

    @property
    def rest(self) -> float:
        """The remaining seconds of the pause."""
        return max(0.0, self._rests_until - time.monotonic())

    def try_now(self, kind: str) -> bool:
        """Send without waiting; False if the sender thread must send, now or after a pause. Safe from any thread."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            now = time.monotonic()
            connection = self._connection
            if connection is None or now < self._rests_until:
                return False
            session = connection.pgconn
            if not self._is_answered:
                session.consume_input()
                self._is_answered = take_answers(session)
            if not self._is_answered or has_gone(connection):
                return False
            self._is_answered = False
            session.send_query(_NO_SYNC + self._commands[kind])
            self._pause = _SHORTEST_PAUSE
            self._rests_until = now + self._pause
            return session.flush() == 0
        except psycopg.Error:
            self._drop()
            return False
        finally:
            self._lock.release()

    def send(self, kinds: Collection[str]) -> None:
        """Send, over a new connection if necessary, and wait for the reply; raises `StoreError`."""
        command = _NO_SYNC + b"".join(self._commands[kind] for kind in kinds)
        with self._lock:
            connection = self._connection
            try:
                if connection is not None and not self._is_answered:
                    await_answers(connection, _TIMEOUT)
                if connection is None or has_gone(connection):
                    self._drop()
                    connection = self._connection = connect_blocking(self._location)
                self._is_answered = False
                connection.pgconn.send_query(command)
                await_answers(connection, _TIMEOUT)
            except BaseException as error:
                self._drop()
                if isinstance(error, psycopg.Error):
                    raise StoreUnavailable(str(error)) from error
                raise
            self._is_answered = True
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)
            self._rests_until = time.monotonic() + self._pause

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            drop(self._connection)
        self._connection = None
        self._is_answered = True
