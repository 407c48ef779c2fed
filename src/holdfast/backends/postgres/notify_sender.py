"""The line on which hints are sent to other processes.

A hint is sent by whoever has it, right when the line is free: to wake a thread for it takes longer than to send it, and
the thread then wants the interpreter lock of whoever goes on. Its answer is taken in before the next hint. All else,
where there is something to wait for, is left to a thread.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
from psycopg import Connection

from holdfast.backends.postgres.connecting import connect_blocking, drop, has_gone
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import await_answers, take_answers

_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05
_TIMEOUT = 5.0


class NotifyConnection:
    """A connection for one command. After it there is a pause, and a longer one if a hint has had to wait for it."""

    def __init__(self, location: PostgresLocation, command: bytes) -> None:
        self._location = location
        self._command = command
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._is_answered = True
        self._pause = _SHORTEST_PAUSE
        self._rests_until = 0.0

    @property
    def rest(self) -> float:
        """The seconds that are left of the pause."""
        return max(0.0, self._rests_until - time.monotonic())

    def try_now(self) -> bool:
        """Send without waiting for anything; False if the thread must, now or after a pause. From any thread."""
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
            session.send_query(self._command)
            self._pause = _SHORTEST_PAUSE
            self._rests_until = now + self._pause
            return session.flush() == 0
        except psycopg.Error:
            self._drop()
            return False
        finally:
            self._lock.release()

    def send(self) -> None:
        """Send what had to wait, over a new connection if need be, and wait for the answer; raises what goes wrong."""
        with self._lock:
            connection = self._connection
            try:
                if connection is not None and not self._is_answered:
                    await_answers(connection, _TIMEOUT)
                if connection is None or has_gone(connection):
                    self._drop()
                    connection = self._connection = connect_blocking(self._location)
                self._is_answered = False
                connection.pgconn.send_query(self._command)
                await_answers(connection, _TIMEOUT)
            except BaseException:
                self._drop()
                raise
            self._is_answered = True
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)
            self._rests_until = time.monotonic() + self._pause

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            drop(self._connection)
        self._connection = None
        self._is_answered = True
