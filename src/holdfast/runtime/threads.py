"""Threads for handlers. They are daemon threads, so a handler that never returns cannot keep its process alive.

(`ThreadPoolExecutor` joins its threads when the interpreter exits, even if they are stuck.)
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Runs functions in reusable threads; their number is the largest number that was ever busy at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread with the caller's context variables; return a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value = context.run(function)
            except BaseException as error:  # noqa: BLE001 - the future raises it
                self._report(loop, partial(_fail, future, error))
            else:
                self._report(loop, partial(_succeed, future, value))

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                name = f"{self._name}-{self._count}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._work.put(work)
        return future

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1

    @staticmethod
    def _report(loop: asyncio.AbstractEventLoop, outcome: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(outcome)

    def close(self) -> None:
        """End the idle threads; busy ones end after their current function."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)


def _succeed(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(_as_exception(error))


def _as_exception(error: BaseException) -> BaseException:
    """Wrap exceptions that a future rejects (StopIteration) or that would stop the event loop (SystemExit)."""
    if isinstance(error, (StopIteration, SystemExit, KeyboardInterrupt)):
        wrapped = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return wrapped
    return error
