"""Threads in which statements may wait, however many do.

A statement that waits for another caller's lock waits for as long as that caller likes. Waiters would take all threads
of a pool, and whoever holds the lock would find none for the statement after which it lets go: the server sees no
cycle, and all wait for ever. So there is always one thread more.
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

NAME: Final = store_thread_name("postgres-statements")
_IDLE: Final = 1.0  # seconds for which a thread is kept for the next statement: to begin one takes longer than most do


class _Threads:
    """Threads that do one thing after another; there are as many as are busy, and those that were just now."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew: a forked child has none of its parent's threads, and the lock may have been held."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work]] = []

    def do(self, work: Work) -> None:
        """Begin `work` now; what it returns is called once the thread is free for the next."""
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None:
            line = SimpleQueue[Work]()
            threading.Thread(target=self._serve, args=(line,), name=NAME, daemon=True).start()
        line.put(work)

    def _serve(self, line: SimpleQueue[Work]) -> None:
        work: Work | None = line.get()
        while work is not None:
            report = work()
            del work
            with self._lock:
                self._idle.append(line)
            report()
            del report  # like the work it would keep a connection alive
            work = self._next(line)

    def _next(self, line: SimpleQueue[Work]) -> Work | None:
        with suppress(Empty):
            return line.get(timeout=_IDLE)
        with self._lock:
            if line in self._idle:
                self._idle.remove(line)
                return None
        return line.get()  # somebody has just taken this thread


_threads: Final = _Threads()


async def where_it_may_wait(function: Callable[[], T]) -> T:
    """Run `function` in the thread of the blocking call that this is, else in one of ours.

    It is waited for even when cancelled: the caller would roll back at once, and the next statement in the thread would
    begin a transaction that nobody asked for.
    """
    thread = calling_thread()
    return await uncancellable(in_own_thread(function) if thread is None else thread.run(function))


async def in_own_thread(function: Callable[[], T]) -> T:
    """Run `function` in a thread that nothing else waits in, with the caller's context variables."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> Report:
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            return partial(_tell, loop, done, partial(done.set_exception, error))
        return partial(_tell, loop, done, partial(done.set_result, value))

    _threads.do(work)
    return await done


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], report: Report) -> None:
    def tell() -> None:
        if not done.done():
            report()

    with suppress(RuntimeError):  # the loop has been closed: nobody waits for it
        loop.call_soon_threadsafe(tell)
