"""Time limits for blocks of code: when the limit has passed, an action interrupts the block."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from holdfast.concurrency.deadlines import Deadlines
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


@contextmanager
def limited(seconds: float | None, break_off: Callable[[], None]) -> Generator[None]:
    """Call `break_off` if the block takes longer; for code in the running event loop. None: no limit."""
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(seconds, break_off)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def limited_blocking(seconds: float | None, break_off: Callable[[], None]) -> Generator[None]:
    """Call `break_off`, from another thread, if the block takes longer. It is never called after the block."""
    if seconds is None:
        yield
        return
    with _deadlines.limit(seconds, break_off):
        yield
