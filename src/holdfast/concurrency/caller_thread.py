"""The thread that waits for a blocking call, lent to the call meanwhile.

```text
   the caller's thread:  app.sync.… ──▶ serves ──▶ errand ──▶ serves ──▶ returns
                              │           ▲   uses the caller's connection
   an event loop's thread:    └─▶ task ───┘ asks                   ▲
                                   └───────────────────────────────┘ ends
```

A blocking call is a task in an event loop of another thread. The connection that its caller gives as `using=` must not
follow it there: sqlite3 refuses other threads, and a thread of a pool may be the very one that the holder of a lock
needs to go on. The caller's thread has nothing else to do, and there is one for each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")


class CallingThread:
    """A thread that waits for a task; `serve` is for that thread, all else for the loop of the task."""

    def __init__(self) -> None:
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._asked: set[asyncio.Future[Any]] = set()
        self._is_gone = False

    def serve(self) -> None:
        """Do what is asked until `dismiss`; what interrupts this thread, in an errand or between them, is raised."""
        while (errand := self._errands.get()) is not None:
            errand()

    def lend_to(self, task: asyncio.Task[Any]) -> None:
        """Let the task, but none that it begins, find this thread with `calling_thread`."""
        _lent[task] = self
        task.add_done_callback(_lent.pop)

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread; cancelled if the thread leaves before it is done."""
        if self._is_gone:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._asked.add(done)
        self._errands.put(partial(_carry_out, function, loop, done))
        try:
            return await done
        finally:
            self._asked.discard(done)

    def dismiss(self) -> None:
        """Let the thread go: the task is over."""
        self._errands.put(None)

    def has_gone(self) -> None:
        """Take note that the thread was interrupted: it serves no more, and what it has not done is cancelled."""
        self._is_gone = True
        for done in self._asked:
            done.cancel()


_lent: Final[dict[asyncio.Task[Any], CallingThread]] = {}


def calling_thread() -> CallingThread | None:
    """Return the thread that waits for the running task; None if that is no blocking call's."""
    task = asyncio.current_task()
    return None if task is None else _lent.get(task)


def _carry_out(function: Callable[[], T], loop: asyncio.AbstractEventLoop, done: asyncio.Future[T]) -> None:
    try:
        value = function()
    except Exception as error:  # noqa: BLE001 - the task's affair; an interrupt, which is not an Exception, is the thread's
        loop.call_soon_threadsafe(_fail, done, error)
    else:
        loop.call_soon_threadsafe(_succeed, done, value)


def _succeed(done: asyncio.Future[T], value: T) -> None:
    if not done.done():
        done.set_result(value)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
