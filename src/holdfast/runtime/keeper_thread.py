"""A thread that keeps leases alive while the event loop may be blocked.

It has a separate connection (`Extender`) and works in turns. A turn that fails because of the store closes the
connection; the next one opens another. Between turns the thread waits, and can be woken.

The thread also detects stuck handlers, which a blocked event loop cannot: a handler is stuck after its time limit and a
grace period. While the whole process was stopped (SIGSTOP, a suspended machine) no handler was stuck: the grace period
then counts from when the process resumed, so that the event loop has time to end what is past its limit.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError, StoreError
from holdfast.store.jobs import Extender

_logger = logging.getLogger("holdfast.worker")
T = TypeVar("T")


class StuckHandlers(Generic[T]):
    """Finds the handlers that are past their time limit and the grace; `limits` is written by the event loop."""

    def __init__(self, limits: Mapping[Any, tuple[float, T]], *, grace: float, tick: float) -> None:
        self._limits = limits
        self._grace = grace
        self._still_after = max(tick, grace / 2)  # a shorter stop leaves the event loop half of the grace
        self._resumed_at = float("-inf")

    def waited(self, seconds: float, now: float) -> None:
        """Note how long a wait of the thread has really taken."""
        if seconds > self._still_after:
            self._resumed_at = now

    def find(self, now: float) -> list[tuple[float, T]]:
        """Return the stuck handlers, each with the seconds since its limit."""
        limits = list(self._limits.values())
        return [(now - at, it) for at, it in limits if now > max(at, self._resumed_at) + self._grace]


class KeeperThread(ABC):
    """Works in turns until it is closed; `died` receives the error that ended it."""

    def __init__(
        self, open_extender: Callable[[], Extender], *, name: str, died: Callable[[BaseException], None]
    ) -> None:
        self._open_extender = open_extender
        self._extender: Extender | None = None
        self._died = died
        self._woken = threading.Event()
        self._is_closed = False
        self.is_connected = True
        """Whether the store has answered in the last turn."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- what a subclass does -----------------------------------------------------------------------------------------

    @abstractmethod
    def check(self, waited: float | None) -> None:
        """Do what needs no store, before each turn; `waited`: the seconds of the wait before it."""

    @abstractmethod
    def work(self, extender: Extender) -> float:
        """Do a turn; return the seconds until the next."""

    @abstractmethod
    def failed(self, error: StoreError) -> float:
        """Note that the store failed; return the seconds until the next turn."""

    def began(self) -> None:  # noqa: B027 - not every subclass has something to do here
        """Note the end of the first turn, whether it succeeded or failed."""

    # --- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs; callable from any thread."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """End the current wait; callable from any thread."""
        self._woken.set()

    def close(self) -> None:
        """End the thread and wait for it; its call of the store is bounded by the store's own timeouts."""
        self._is_closed = True
        self._woken.set()
        self._thread.join()

    def pause(self, seconds: float) -> bool:
        """Wait for the next turn; True if there is none."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self._is_closed

    def now(self) -> float:
        """The clock by which waits are measured."""
        return time.monotonic()

    def _run(self) -> None:
        try:
            seconds = self._turn(None)
            self.began()
            while True:
                paused_at = self.now()
                if self.pause(seconds):
                    return
                seconds = self._turn(self.now() - paused_at)
        except BaseException as error:  # noqa: BLE001 - the death of the thread is reported, never silent
            self._died(error)
        finally:
            self._close_extender()

    def _turn(self, waited: float | None) -> float:
        self.check(waited)
        try:
            extender = self._extender or self._open_extender()
            self._extender = extender
            seconds = self.work(extender)
            self.is_connected = True
            return seconds  # noqa: TRY300 - `work` may raise what is handled below
        except StoreError as error:
            self.is_connected = False
            self._close_extender()
            return self.failed(error)

    def _close_extender(self) -> None:
        extender, self._extender = self._extender, None
        if extender is not None:
            try:
                extender.close()
            except HoldfastError as error:
                _logger.warning("closing the connection of the thread that extends leases failed: %s", error)
