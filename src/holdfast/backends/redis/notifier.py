"""Notifications by PUBLISH and SUBSCRIBE: they only improve latency.

The scripts that make jobs ready publish by themselves, if their lane was empty; those that end jobs do if a
key exists that `expect_ends` sets, and that expires. Other notifications are sent by a thread with its own connection.
"""

from __future__ import annotations

import select
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from holdfast.backends.redis.primary import connect_blocking
from holdfast.backends.redis.wire import BlockingWire, Server
from holdfast.store.local_notifier import EXPECTED_FOR, StopSignal
from holdfast.store.remote_notifier import RemoteNotifier

_JOBS, _EXPECTED = "jobs", "expected"
_AGAIN_AFTER = 1.0
_LOOK_EVERY = 5.0  # seconds: whether another primary is known by now
_TIMEOUT = 5.0
_FAULTS = (RedisError, OSError)


class PublishConnection:
    """The connection that notifies other processes; a thread uses it, because it may have to wait."""

    rest = 0.0

    def __init__(self, server: Server) -> None:
        prefix = server.location.prefix
        self._wire = BlockingWire(server)
        self._commands: dict[str, tuple[str | int, ...]] = {
            _JOBS: ("PUBLISH", f"{prefix}wake", "r"),
            _EXPECTED: ("SET", f"{prefix}ends", "1", "PX", int(EXPECTED_FOR * 1000)),
        }

    def try_now(self, kind: str) -> bool:  # noqa: ARG002 - see `NotificationSender`
        """Leave it to the thread."""
        return False

    def send(self, kinds: Collection[str]) -> None:
        """Send, over a new connection if necessary, and wait for the replies; raises `StoreError`."""
        for kind in kinds:
            self._wire.ask(self._commands[kind], _TIMEOUT)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


class RedisNotifier(RemoteNotifier):
    """Notifies this process directly, and other processes through the server."""

    def __init__(self, server: Server) -> None:
        super().__init__("redis", self._listen, PublishConnection(server))
        self._primary = server.primary
        self._channel = f"{server.location.prefix}wake"

    def notify(self) -> None:
        """Wake the listeners of this process, and notify other processes."""
        super().notify()
        self.notify_others(_JOBS)

    def wake_here(self) -> None:
        """Wake the listeners of this process: the script has notified the others."""
        super().notify()

    def expect_ends(self) -> None:
        """Announce to other processes that something waits for ends here."""
        self.notify_others(_EXPECTED)

    def _listen(self, stop: StopSignal) -> None:
        """Receive notifications until the thread is to end; connect again after a fault."""
        while not stop.is_set():
            try:
                self._receive(stop)
            except _FAULTS as error:
                self._logger.debug("the connection for notifications broke: %s", error)
                stop.wait(_AGAIN_AFTER)

    def _receive(self, stop: StopSignal) -> None:
        connection, address = connect_blocking(self._primary, _TIMEOUT)
        try:
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
            super().notify()  # something may have arrived before it subscribed
            super().notify_ends()
            poll = _poll(connection, stop)
            while not stop.is_set() and self._primary.is_current(address):
                has_come = any(descriptor != stop.fileno() for descriptor, _ in poll.poll(_LOOK_EVERY * 1000))
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
    poll = select.poll()
    poll.register(connection._sock, select.POLLIN)  # noqa: SLF001 - the driver has no other way to wait for two things
    poll.register(stop, select.POLLIN)
    return poll
