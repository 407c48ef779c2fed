"""Blocking calls of async code: one event loop in one thread, for all of them in a process.

```text
   call ──▶ RUNNING ──▶ ENDED ──▶ its result, or its exception
               └─▶ INTERRUPTED ──▶ ENDED ──▶ the exception that interrupted the waiting thread
```

An exception in the waiting thread, for example KeyboardInterrupt, cancels the call, and the thread waits for its end.
So nothing continues in the background after an interrupt, unless that wait is interrupted too: `close` then waits for
it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Generic, TypeVar

from holdfast.concurrency.caller_thread import CallingThread
from holdfast.errors import ConfigError
from holdfast.runtime.unawaited import discard

T = TypeVar("T")
THREAD: Final = "holdfast-sync"
_CLOSE_TIMEOUT: Final = 30.0  # seconds that `close` waits for an interrupted call; a worker ends within 9


class _Loop:
    """An event loop in a thread, until it is ended."""

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: self._serve(started), name=THREAD, daemon=True)
        self._thread.start()
        try:
            self.loop, self._ending = started.result()
        except BaseException:
            started.add_done_callback(_end_unused)
            raise

    def _serve(self, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        async def serve() -> None:
            ending = asyncio.Event()
            started.set_result((asyncio.get_running_loop(), ending))
            await ending.wait()

        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)  # no loop could be created: raised in the caller

    def end(self) -> None:
        """End the thread and cancel what still runs in the loop."""
        self.loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()


def _end_unused(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    """End a loop whose creator was interrupted while it waited for it."""
    if started.exception() is None:
        loop, ending = started.result()
        loop.call_soon_threadsafe(ending.set)


class _PortalCall(Generic[T]):
    """One call: a task in the loop, and the thread that waits for it."""

    def __init__(self, portal: Portal, work: Coroutine[Any, Any, T]) -> None:
        self.caller = threading.current_thread().name
        self.name = getattr(work, "__qualname__", type(work).__name__)
        self.is_interrupted = False
        self._portal = portal
        self._work = work
        self._lock = threading.Lock()
        self._thread = CallingThread()
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task, with the context variables of this thread."""
        self._loop = loop
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        with self._lock:
            if self.is_interrupted:
                return
            self._task = asyncio.get_running_loop().create_task(self._work)
        self._thread.attach_to(self._task)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if no thread waits for it any more
        self._portal.forget(self)
        self._over.set()
        self._thread.stop()

    def wait(self) -> T:
        """Wait for the task and return its result; an exception that interrupts this thread is raised at once."""
        self._thread.serve()
        task, self._task = self._task, None
        assert task is not None  # noqa: S101 - it has ended
        try:
            if task.cancelled():
                raise CancelledError
            return task.result()
        finally:
            del task, self  # an exception refers to this frame, and would keep itself alive

    def interrupt(self, within: float | None = None) -> bool:
        """Cancel the task once and wait for its end; False if it has not ended by then."""
        if self._over.is_set():
            return True
        with self._lock:
            self.is_interrupted = True
            loop = None if self._task is None else self._loop
        if loop is None:  # it has not started, and will not
            self._work.close()
            self._portal.forget(self)
            return True
        loop.call_soon_threadsafe(self._cancel)
        return self._over.wait(within)

    def _cancel(self) -> None:
        task = self._task
        if task is not None and not self._is_cancelled:  # a second cancellation would interrupt its clean-up
            self._is_cancelled = True
            self._thread.interrupted()
            task.cancel()


class Portal:
    """An event loop in its own thread, started by the first call; a forked child starts a new one."""

    def __init__(self, *, close_timeout: float = _CLOSE_TIMEOUT) -> None:
        self._process = os.getpid()
        self._close_timeout = close_timeout
        self._forget_all()

    def _forget_all(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._calls: set[_PortalCall[Any]] = set()

    def _know_process(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._forget_all()  # the parent's lock may have been held when it forked

    @property
    def is_idle(self) -> bool:
        """Whether its thread runs in this process and serves no call."""
        self._know_process()
        with self._lock:
            return self._loop is not None and not self._calls

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result.

        An exception that interrupts the calling thread cancels the coroutine and is raised once that has ended; a
        second one is raised at once.
        """
        _refuse_in_loop(work)
        self._know_process()
        call = _PortalCall(self, work)
        try:
            self._begin(call)
            return call.wait()
        except BaseException:
            call.interrupt()
            raise

    def _begin(self, call: _PortalCall[Any]) -> None:
        with self._lock:
            if self._loop is None:
                self._loop = _Loop()
            self._calls.add(call)
            call.begin(self._loop.loop)

    def forget(self, call: _PortalCall[Any]) -> None:
        """Remove a call that has ended."""
        with self._lock:
            self._calls.discard(call)

    def settle(self) -> None:
        """Wait for interrupted calls; raise `ConfigError` if one does not end, or other calls are in flight."""
        self._know_process()
        with self._lock:
            calls = list(self._calls)
        _refuse_while_in_flight([call for call in calls if not call.is_interrupted])
        for call in calls:
            if not call.interrupt(self._close_timeout):
                message = (
                    f"app.sync.close() has closed nothing: {call.name}, called in thread {call.caller}, was "
                    f"interrupted and has not ended within {self._close_timeout:g} s: find out why, then close again"
                )
                raise ConfigError(message)

    def close(self) -> None:
        """End the thread unless a call is in flight; the next call starts another."""
        self._know_process()
        with self._lock:
            if self._calls:
                return
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.end()


def _refuse_in_loop(work: Coroutine[Any, Any, Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    discard(work)
    message = "`.sync` would block the running event loop: in async code, await the call without `.sync`"
    raise ConfigError(message)


def _refuse_while_in_flight(calls: list[_PortalCall[Any]]) -> None:
    if calls:
        who = ", ".join(sorted(f"{call.name} in thread {call.caller}" for call in calls))
        message = (
            f"app.sync.close() has closed nothing, since calls are in flight: {who}. Let them end, then close again"
        )
        raise ConfigError(message)
