"""Notify other processes through a server: at once if that is possible without waiting, otherwise from a thread.

A notification only improves latency. So an error is logged, and no call that notifies ever waits for the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Protocol

from holdfast.errors import StoreError
from holdfast.store.local_notifier import LocalNotifier, StopSignal

_AGAIN_AFTER = 1.0


class NotificationSender(Protocol):
    """A connection that sends notifications, named by their kind; only the sending thread calls `send`."""

    @property
    def rest(self) -> float:
        """The seconds to wait before the next `send`."""
        ...

    def try_now(self, kind: str) -> bool:
        """Send without waiting; False if the thread must send. Safe from any thread."""
        ...

    def send(self, kinds: Collection[str]) -> None:
        """Send, over a new connection if necessary, and wait for the reply; raises `StoreError`."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RemoteNotifier(LocalNotifier):
    """`Notifier` of a store that other processes reach through a server."""

    def __init__(self, store: str, watch: Callable[[StopSignal], None], sender: NotificationSender) -> None:
        super().__init__(store, watch)
        self._sender = sender
        self._asked = threading.Event()
        self._pending: set[str] = set()
        self._closing = threading.Event()
        self._has_thread = False

    def notify_others(self, kind: str) -> None:
        """Notify other processes, now or soon; several notifications of one kind may become one."""
        if self._has_thread and kind in self._pending:
            return  # the thread takes it later, and sends it after that
        if self._sender.try_now(kind):
            return
        with self._lock:
            self._pending.add(kind)
        self._asked.set()
        if not self._has_thread:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if not self._has_thread and not self._closing.is_set():
                try:
                    self._start("notify", self._send)
                except RuntimeError as error:  # no thread available now; the next notification starts one
                    self._logger.debug("could not notify other processes: %s", error)
                else:
                    self._has_thread = True

    def close(self) -> None:
        """Remove all listeners, and request the end of the threads."""
        super().close()
        self._closing.set()
        self._asked.set()
        if not self._has_thread:  # else the thread closes the connection: it may be waiting for a reply on it
            self._sender.close()

    def _send(self) -> None:
        while not self._closing.is_set():
            self._asked.wait()
            self._closing.wait(self._sender.rest)
            self._asked.clear()
            if self._closing.is_set():
                break
            with self._lock:
                kinds, self._pending = self._pending, set()
            try:
                self._sender.send(kinds)
            except StoreError as error:
                self._logger.debug("could not notify other processes: %s", error)
                self._closing.wait(_AGAIN_AFTER)
        self._sender.close()
