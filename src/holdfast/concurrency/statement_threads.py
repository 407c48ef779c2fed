"""Threads for statements that may wait for locks, without an upper limit.

A statement that waits for a lock of another caller may wait for any time. In a bounded pool, such statements could
occupy all threads, and the holder of the lock would get none for the statement that releases it: a deadlock that the
server cannot detect. So a statement always gets a thread: an idle one or a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from holdfast.concurrency.caller_thread import calling_thread
from holdfast.concurrency.store_threads import store_thread_name
from holdfast.concurrency.uncancellable import uncancellable

T = TypeVar("T")
Report = Callable[[], None]
Work = Callable[[], Report]

NAME: Final = store_thread_name("statements")
_IDLE: Final = 1.0  # seconds for which an idle thread is kept: starting one takes longer than most statements


class _StatementThreads:
    """Threads that each run one function at a time; as many as are busy, and those that were busy until recently."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Reset: a forked child has none of its parent's threads, and the lock may have been held."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work]] = []

    def do(self, work: Work) -> None:
        """Start `work` now; the function that it returns is called once the thread is idle again."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue[Work]()
            threading.Thread(target=self._serve, args=(inbox,), name=NAME, daemon=True).start()
        inbox.put(work)

    def _serve(self, inbox: SimpleQueue[Work]) -> None:
        work: Work | None = inbox.get()
        while work is not None:
            report = work()
            del work
            with self._lock:
                self._idle.append(inbox)
            report()
            del report  # like the work, it would keep a connection alive
            work = self._next(inbox)

    def _next(self, inbox: SimpleQueue[Work]) -> Work | None:
        with suppress(Empty):
            return inbox.get(timeout=_IDLE)
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # `do` has just taken this thread


_threads: Final = _StatementThreads()


async def where_it_may_wait(function: Callable[[], T]) -> T:
    """Run `function` in the calling thread of a blocking call, else in a thread of this module.

    It is waited for even when cancelled: otherwise the caller would roll back at once, and the next statement in the
    thread would silently begin another transaction.
    """
    thread = calling_thread()
    return await uncancellable(in_own_thread(function) if thread is None else thread.run(function))


async def where_it_was_called(function: Callable[[], T]) -> T:
    """Run `function` in the calling thread of a blocking call, else in this one: for what only its thread may use."""
    thread = calling_thread()
    return function() if thread is None else await uncancellable(thread.run(function))


async def in_own_thread(function: Callable[[], T]) -> T:
    """Run `function` in a thread that runs nothing else meanwhile, with the caller's context variables."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> Report:
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            return partial(_deliver, loop, done, partial(done.set_exception, error))
        return partial(_deliver, loop, done, partial(done.set_result, value))

    _threads.do(work)
    return await done


def _deliver(loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], report: Report) -> None:
    def deliver() -> None:
        if not done.done():
            report()

    with suppress(RuntimeError):  # the event loop is closed, so no task waits for the result
        loop.call_soon_threadsafe(deliver)
