"""The thread that listens for notifications from other processes, on a separate connection.

A listening connection can stop receiving without an error: its link may be dead, or a pooler may have assigned the
listening session to another client. So the thread periodically sends itself a probe, and reconnects when the probe does
not arrive. Nothing here raises: without notifications, jobs are found by polling.
"""

from __future__ import annotations

import logging
import os
import random
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection, sql

from holdfast.backends.postgres.connecting import connect_blocking, drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import await_answers
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.errors import StoreError

_PROBE_EVERY = 20.0
_PROBE_TIMEOUT = 5.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_logger = logging.getLogger("holdfast.postgres")


class _DeafError(Exception):
    """The probe did not arrive."""


class Listener:
    """Calls `wake` at each notification on the channel that does not carry our own mark."""

    def __init__(self, location: PostgresLocation, channel: str, own_mark: str, wake: Callable[[], None]) -> None:
        self._location = location
        self._channel = channel
        self._own_mark = own_mark
        self._probe = f"probe {own_mark}"
        self._wake = wake
        self._stop_read, self._stop_write = os.pipe()
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards the pipe, which is open until the thread ends
        self.thread = threading.Thread(target=self._run, name=store_thread_name("postgres-listen"), daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Signal the thread to end, without waiting: it may be connecting to a server that does not answer."""
        with self._lock:
            if not self._stopping.is_set():
                self._stopping.set()
                os.write(self._stop_write, b"x")

    def _run(self) -> None:
        try:
            self._connect_and_listen()
        finally:
            with self._lock:
                self._stopping.set()
                os.close(self._stop_read)
                os.close(self._stop_write)

    def _connect_and_listen(self) -> None:
        pause = _FIRST_PAUSE
        warned = False
        while not self._stopping.is_set():
            connection = None
            began = time.monotonic()
            try:
                connection = connect_blocking(self._location)
                if not self._stopping.is_set():
                    self._send(connection, sql.SQL("listen {}").format(sql.Identifier(self._channel)))
                    self._wake()  # for notifications sent before LISTEN
                    self._listen(connection)
            except (psycopg.Error, StoreError, _DeafError, OSError) as error:
                if not warned and not self._stopping.is_set():
                    _logger.warning("no notifications from other processes, jobs are found by polling: %s", error)
                    warned = True
            finally:
                if connection is not None:
                    drop(connection)
            if time.monotonic() - began > _PROBE_EVERY:
                pause, warned = _FIRST_PAUSE, False
            self._stopping.wait(pause * (0.5 + random.random()))  # noqa: S311 - jitter, not a secret
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _listen(self, connection: Connection[Any]) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        probed_at: float | None = None
        next_probe = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            if probed_at is not None and now - probed_at > _PROBE_TIMEOUT:
                message = "no notification arrives, not even our own probe (transaction poolers do not support LISTEN)"
                raise _DeafError(message)
            if probed_at is None and now >= next_probe:
                probe = sql.SQL("notify {}, {}").format(sql.Identifier(self._channel), sql.Literal(self._probe))
                self._send(connection, probe)
                probed_at = now
            marks = _received(connection)
            if self._probe in marks:
                probed_at, next_probe = None, now + _PROBE_EVERY
            if any(mark not in {self._probe, self._own_mark} for mark in marks):
                self._wake()
            if not marks:
                until = next_probe if probed_at is None else probed_at + _PROBE_TIMEOUT
                poll.poll(max(1, int((until - time.monotonic()) * 1000) + 1))

    def _send(self, connection: Connection[Any], command: sql.Composed) -> None:
        connection.pgconn.send_query(command.as_bytes(connection))
        await_answers(connection, _PROBE_TIMEOUT)


def _received(connection: Connection[Any]) -> list[str]:
    """Return the marks of the notifications received; straight from libpq, since the driver's API takes too long."""
    session = connection.pgconn
    session.consume_input()
    marks: list[str] = []
    while (notification := session.notifies()) is not None:
        marks.append(notification.extra.decode())
    return marks
