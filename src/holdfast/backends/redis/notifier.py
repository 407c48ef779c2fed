"""Notifications by PUBLISH and SUBSCRIBE: they only improve latency.

The scripts that make jobs ready publish by themselves, if their lane was empty; those that end jobs do if a
key exists that `expect_ends` sets, and that expires. Other notifications are sent by a thread with its own connection.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from holdfast.backends.redis.route import Route, connect_blocking
from holdfast.store.local_notifier import EXPECTED_FOR, LocalNotifier, StopSignal

_AGAIN_AFTER = 1.0
_FAULTS = (RedisError, OSError)


class RedisNotifier(LocalNotifier):
    """Notifies this process directly, and other processes through the server."""

    def __init__(self, route: Route) -> None:
        super().__init__("redis", self._listen)
        self._route = route
        self._channel = f"{route.location.prefix}wake"
        self._ends = f"{route.location.prefix}ends"
        self._asked = threading.Event()
        self._closing = threading.Event()
        self._pending: set[str] = set()
        self._has_sender = False

    def notify(self) -> None:
        """Wake the listeners of this process, and tell other processes."""
        super().notify()
        self._tell("r")

    def wake_here(self) -> None:
        """Wake the listeners of this process: the script has notified the others."""
        super().notify()

    def expect_ends(self) -> None:
        """Announce to other processes that something waits for ends here."""
        self._tell("expect")

    def _tell(self, what: str) -> None:
        with self._lock:
            self._pending.add(what)
            if not self._has_sender and not self._closing.is_set():
                try:
                    self._start("notify", self._send)
                except RuntimeError as error:  # no thread available now; the next notification starts one
                    self._logger.debug("could not notify other processes: %s", error)
                    return
                self._has_sender = True
        self._asked.set()

    def close(self) -> None:
        """Remove all listeners, and request the end of the threads."""
        super().close()
        self._closing.set()
        self._asked.set()

    def _send(self) -> None:
        connection: Any = None
        while not self._closing.is_set():
            self._asked.wait()
            self._asked.clear()
            with self._lock:
                kinds, self._pending = self._pending, set()
            try:
                connection = connection or connect_blocking(self._route, 5.0)[0]
                for kind in kinds:
                    if kind == "expect":
                        connection.send_command("SET", self._ends, "1", "PX", int(EXPECTED_FOR * 1000))
                    else:
                        connection.send_command("PUBLISH", self._channel, kind)
                    connection.read_response()
            except _FAULTS as error:
                self._logger.debug("could not notify other processes: %s", error)
                self._route.heed(error, self._route.address)
                if connection is not None:
                    connection.disconnect()
                connection = None
                self._closing.wait(_AGAIN_AFTER)
        if connection is not None:
            connection.disconnect()

    def _listen(self, stop: StopSignal) -> None:
        """Receive notifications until the thread is to end; connect again after a fault."""
        while not stop.is_set():
            try:
                self._receive(stop)
            except _FAULTS as error:
                self._logger.debug("the connection for notifications broke: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _receive(self, stop: StopSignal) -> None:
        connection, _ = connect_blocking(self._route, None)
        try:
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
            super().notify()  # something may have come while no connection listened
            super().notify_ends()
            poll = _poll(connection, stop)
            while not stop.is_set():
                has_come = any(descriptor != stop.fileno() for descriptor, _ in poll.poll(30_000))
                while has_come and not stop.is_set():
                    _, _, kind = connection.read_response()
                    if kind == b"e":
                        super().notify_ends()
                    else:
                        super().notify()
                    has_come = connection.can_read(timeout=0)  # slow, so after the listeners are woken
        finally:
            with suppress(*_FAULTS):
                connection.disconnect()


def _poll(connection: Any, stop: StopSignal) -> Any:
    import select

    poll = select.poll()
    poll.register(connection._sock, select.POLLIN)  # noqa: SLF001 - the driver has no other way to wait for two things
    poll.register(stop, select.POLLIN)
    return poll
