"""Timeouts in an event loop that are hardly ever reached, at a tenth of the cost of a timer each.

A timer of the loop is an entry in a heap that is compared in Python. Here timeouts of one length are kept in the order
in which they were set, which is that of their ends, and one timer watches the first of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.concurrency.per_loop import PerLoop


class LoopTimeout:
    """An action that the event loop runs after its time, unless it is cancelled before."""

    __slots__ = ("_others", "action", "at")

    def __init__(self, others: _Equal, at: float, action: Callable[[], None]) -> None:
        self._others = others
        self.at = at
        self.action = action

    def cancel(self) -> None:
        """Withdraw it."""
        self._others.waiting.pop(self, None)


class _Equal:
    """The timeouts of one length."""

    __slots__ = ("seconds", "timer", "waiting")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waiting: dict[LoopTimeout, None] = {}
        self.timer: asyncio.TimerHandle | None = None

    def set(self, loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> LoopTimeout:
        timeout = LoopTimeout(self, loop.time() + self.seconds, action)
        self.waiting[timeout] = None
        if self.timer is None:
            self.timer = loop.call_at(timeout.at, self.end_first)
        return timeout

    def end_first(self) -> None:
        """Run the first action if its time has come, and set the timer for the next."""
        loop = asyncio.get_running_loop()
        self.timer = None
        if not self.waiting:
            _lengths.here().pop(self.seconds, None)
            return
        first = next(iter(self.waiting))
        self.timer = loop.call_at(first.at, self.end_first)
        if first.at <= loop.time():
            del self.waiting[first]
            first.action()


_lengths: PerLoop[dict[float, _Equal]] = PerLoop(lambda _: {})


def set_timeout(seconds: float, action: Callable[[], None]) -> LoopTimeout:
    """Run `action` in the running event loop after so many seconds, unless the timeout is cancelled before."""
    lengths = _lengths.here()
    equal = lengths.get(seconds)
    if equal is None:
        equal = lengths[seconds] = _Equal(seconds)
    return equal.set(asyncio.get_running_loop(), action)
