"""Time limits for blocks of code: when the limit has passed, an action interrupts the block."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from holdfast.concurrency.deadlines import Deadline, Deadlines
from holdfast.concurrency.loop_timeouts import LoopTimeout, set_timeout
from holdfast.concurrency.store_threads import store_thread_name

_NAME = store_thread_name("timeouts")
_deadlines = Deadlines(_NAME)


def _start_afresh() -> None:
    """Forget the thread: it has ended, or belongs to the parent of this forked process."""
    global _deadlines  # noqa: PLW0603 - one thread per process watches all timeouts
    _deadlines = Deadlines(_NAME)


os.register_at_fork(after_in_child=_start_afresh)


def end_watcher() -> None:
    """End the thread, before a fork; the next timeout starts another. No block may be running."""
    _deadlines.close()
    _start_afresh()


class limited:  # noqa: N801 - used as a function
    """Call `break_off` if the block takes longer; for code in the running event loop. None: no limit."""

    __slots__ = ("_break_off", "_seconds", "_timeout")

    def __init__(self, seconds: float | None, break_off: Callable[[], None]) -> None:
        self._seconds = seconds
        self._break_off = break_off
        self._timeout: LoopTimeout | None = None

    def __enter__(self) -> None:
        """Set the limit."""
        if self._seconds is not None:
            self._timeout = set_timeout(self._seconds, self._break_off)

    def __exit__(self, *_: object) -> None:
        """Withdraw it."""
        if self._timeout is not None:
            self._timeout.cancel()


@contextmanager
def limited_blocking(seconds: float | None, break_off: Callable[[], None]) -> Generator[None]:
    """Call `break_off`, from another thread, if the block takes longer. It is never called after the block."""
    if seconds is None:
        yield
        return
    deadline = set_deadline(seconds, break_off)
    try:
        yield
    finally:
        deadline.cancel()


def set_deadline(seconds: float, action: Callable[[], None]) -> Deadline:
    """Run `action` in the thread that watches all timeouts, unless it is cancelled before; it must not wait."""
    return _deadlines.set(seconds, action)
