"""The thread that listens for notifications from other processes, on a separate connection.

A listening connection can stop receiving without an error: its link may be dead, or a pooler may have assigned the
listening session to another client. So the thread periodically sends itself a probe, and reconnects when the probe does
not arrive. Nothing here raises: without notifications, jobs are found by polling.
"""

from __future__ import annotations

import logging
import random
import select
import time
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import Connection, sql

from holdfast.backends.postgres.connecting import connect_blocking, drop
from holdfast.backends.postgres.location import PostgresLocation
from holdfast.backends.postgres.timeouts import await_answers
from holdfast.errors import StoreError
from holdfast.store.local_notifier import StopSignal

_PROBE_EVERY = 20.0
_PROBE_TIMEOUT = 5.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_logger = logging.getLogger("holdfast.postgres")


class NotificationKind(StrEnum):
    """What a notification says; it stands before the mark of its sender."""

    JOBS = ""  # there may be new jobs or events
    ENDS = "ends"  # jobs may have ended
    EXPECTED = "expected"  # something waits for the end of a job
    PROBE = "probe"  # of a listener, to itself


class Listener:
    """Calls `received` with the kinds of the notifications on the channel that do not carry our own mark."""

    def __init__(
        self, location: PostgresLocation, channel: str, own_mark: str, received: Callable[[Collection[str]], None]
    ) -> None:
        self._location = location
        self._channel = sql.Identifier(channel)
        self._own_mark = own_mark
        self._probe = f"{NotificationKind.PROBE} {own_mark}"
        self._on_received = received

    def run(self, stop: StopSignal) -> None:
        """Listen until `stop` is set; an error only delays notifications: it is logged, and another attempt follows."""
        pause = _FIRST_PAUSE
        warned = False
        while not stop.is_set():
            connection = None
            began = time.monotonic()
            try:
                connection = connect_blocking(self._location)
                if not stop.is_set():
                    _send(connection, sql.SQL("listen {}").format(self._channel))
                    self._on_received(set(NotificationKind))  # for notifications sent before LISTEN
                    self._listen(connection, stop)
            except (psycopg.Error, StoreError, OSError) as error:
                if not warned and not stop.is_set():
                    _logger.warning("no notifications from other processes, jobs are found by polling: %s", error)
                    warned = True
            finally:
                if connection is not None:
                    drop(connection)
            if time.monotonic() - began > _PROBE_EVERY:
                pause, warned = _FIRST_PAUSE, False
            stop.wait(pause * (0.5 + random.random()))  # noqa: S311 - jitter, not a secret
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _listen(self, connection: Connection[Any], stop: StopSignal) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(stop, select.POLLIN)
        probed_at: float | None = None
        next_probe = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            if probed_at is not None and now - probed_at > _PROBE_TIMEOUT:
                message = "no notification arrives, not even our own probe (transaction poolers do not support LISTEN)"
                raise psycopg.OperationalError(message)
            if probed_at is None and now >= next_probe:
                _send(connection, sql.SQL("notify {}, {}").format(self._channel, sql.Literal(self._probe)))
                probed_at = now
            received = _received(connection)
            if self._probe in received:
                probed_at, next_probe = None, now + _PROBE_EVERY
            kinds = {kind for kind, _, mark in (text.rpartition(" ") for text in received) if mark != self._own_mark}
            if kinds:
                self._on_received(kinds)
            if not received:
                until = next_probe if probed_at is None else probed_at + _PROBE_TIMEOUT
                poll.poll(max(1, int((until - time.monotonic()) * 1000) + 1))


def _send(connection: Connection[Any], command: sql.Composed) -> None:
    connection.pgconn.send_query(command.as_bytes(connection))
    await_answers(connection, _PROBE_TIMEOUT)


def _received(connection: Connection[Any]) -> list[str]:
    """Return the notifications received; straight from libpq, since the driver's API takes too long."""
    session = connection.pgconn
    session.consume_input()
    texts: list[str] = []
    while (notification := session.notifies()) is not None:
        texts.append(notification.extra.decode())
    return texts
