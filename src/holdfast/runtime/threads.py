"""Threads for handlers: daemons, so that one that never ends cannot keep its process from ending.

(`ThreadPoolExecutor` joins its threads when the interpreter exits, however stuck they are.)
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
    """Runs functions in threads that are kept for the next; there are as many as were ever busy at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread, with the caller's context variables; the future is the loop's."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value = context.run(function)
            except BaseException as error:  # noqa: BLE001 - handed to the future, whatever it is
                self._tell(loop, partial(_fail, future, error))
            else:
                self._tell(loop, partial(_succeed, future, value))

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
    def _tell(loop: asyncio.AbstractEventLoop, report: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(report)

    def close(self) -> None:
        """Let the idle threads end; busy ones end after their work."""
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
    """A future refuses StopIteration, and asyncio would end the loop on SystemExit."""
    if isinstance(error, (StopIteration, SystemExit, KeyboardInterrupt)):
        wrapped = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return wrapped
    return error
