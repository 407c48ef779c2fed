"""Run functions in the thread of a blocking caller while it waits for its result.

```text
   the caller's thread:     app.sync.… ──▶ serve ──▶ function ──▶ serve ──▶ return
                              │              ▲   uses the caller's connection   ▲
   the event loop's thread:   └─▶ task ──────┘ run(function)                    │
                                   └────────────────────────────────────────────┘ stop
```

A blocking call runs as a task in the event loop of another thread. The connection that its caller passes as `using=`
must stay in the caller's thread: sqlite3 rejects other threads, and a thread of a shared pool may be the one that the
holder of a lock needs in order to continue. The caller's thread is idle meanwhile, and each call has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")


class CallingThread:
    """A thread that waits for a task. It calls `serve`; the task's event loop calls the other methods."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._pending: set[asyncio.Future[Any]] = set()
        self._is_interrupted = False

    def serve(self) -> None:
        """Run the functions passed to `run` until `stop`; an interrupt of this thread propagates to the caller."""
        while (call := self._calls.get()) is not None:
            call()

    def attach_to(self, task: asyncio.Task[Any]) -> None:
        """Make `calling_thread` return this thread inside the task, but not inside tasks that it starts."""
        _attached[task] = self
        task.add_done_callback(_attached.pop)

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread; raise `CancelledError` if the thread is interrupted first."""
        if self._is_interrupted:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._pending.add(done)
        self._calls.put(partial(_run_call, function, loop, done))
        try:
            return await done
        finally:
            self._pending.discard(done)

    def stop(self) -> None:
        """End `serve`: the task has ended."""
        self._calls.put(None)

    def interrupted(self) -> None:
        """Cancel the pending calls: the thread was interrupted and no longer serves."""
        self._is_interrupted = True
        for done in self._pending:
            done.cancel()


_attached: Final[dict[asyncio.Task[Any], CallingThread]] = {}


def calling_thread() -> CallingThread | None:
    """Return the thread that waits for the running task; None if the task does not belong to a blocking call."""
    task = asyncio.current_task()
    return None if task is None else _attached.get(task)


def _run_call(function: Callable[[], T], loop: asyncio.AbstractEventLoop, done: asyncio.Future[T]) -> None:
    try:
        value = function()
    except Exception as error:  # noqa: BLE001 - raised in the task; an interrupt is no Exception and ends the thread
        loop.call_soon_threadsafe(_fail, done, error)
    else:
        loop.call_soon_threadsafe(_succeed, done, value)


def _succeed(done: asyncio.Future[T], value: T) -> None:
    if not done.done():
        done.set_result(value)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
