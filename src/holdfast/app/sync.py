"""The blocking face of what is async: the same names, called from ordinary code.

One event loop in one background thread serves all blocking calls of an app in a process. Context variables travel with
the call, so a blocking call inside `ctx.sync.transaction()` joins that transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar, cast

from holdfast.errors import ConfigError

T = TypeVar("T")
Target = TypeVar("Target")
THREAD: Final = "holdfast-sync"


class _Loop:
    """An event loop in a thread, until it is ended."""

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: self._serve(started), name=THREAD, daemon=True)
        self._thread.start()
        self.loop, self._ending = started.result()

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
            started.set_exception(error)  # no loop could be made: whoever asked for it is told

    def end(self) -> None:
        """End the thread, and what was left running in the loop with it."""
        self.loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()


class Portal:
    """The way into an event loop in a thread of its own, begun with the first call; a forked child gets a new one."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._under_way = 0

    def _know_process(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._forget()  # the parent's lock may have been held when it forked

    @property
    def is_idle(self) -> bool:
        """Whether its thread runs in this process and serves no call."""
        self._know_process()
        with self._lock:
            return self._loop is not None and not self._under_way

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._begin(work).result()
        work.close()
        message = "`.sync` would block the running event loop: in async code, await the call without `.sync`"
        raise ConfigError(message)

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        self._know_process()
        with self._lock:
            if self._loop is None:
                try:
                    self._loop = _Loop()
                except BaseException:
                    work.close()
                    raise
            call = asyncio.run_coroutine_threadsafe(work, self._loop.loop)
            self._under_way += 1
        call.add_done_callback(self._ended)
        return call

    def _ended(self, _: Future[Any]) -> None:
        with self._lock:
            self._under_way -= 1

    def close(self) -> None:
        """End the thread, unless it serves a call; the next call begins another."""
        self._know_process()
        with self._lock:
            if self._under_way:
                return
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.end()


class Sync(Generic[Target]):
    """An object's async methods as blocking ones; all else is passed on.

    What leads on to objects with a `sync` of their own (`app.sync.jobs`) gives that. What a call returns is what its
    async twin returns: a handle among it has a `sync` of its own. What has no blocking twin raises `ConfigError`.
    """

    def __init__(self, target: Target, portal: Portal) -> None:
        self._target = target
        self._portal = portal

    @property
    def sync(self) -> Any:
        """This, so that it does no harm to ask twice."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Return the blocking twin of an attribute."""
        value = getattr(self._target, name)
        if inspect.iscoroutinefunction(value):
            return _named_after(value, lambda *args, **kwargs: self._portal.call(value(*args, **kwargs)))
        if inspect.ismethod(value):
            return _named_after(value, lambda *args, **kwargs: _refuse_async(name, value(*args, **kwargs)))
        has_own = isinstance(getattr(cast("object", type(value)), "sync", None), property)
        return value.sync if has_own else value

    def __dir__(self) -> list[str]:
        """Offer the names of the async object."""
        return sorted(name for name in dir(self._target) if not name.startswith("_"))

    def __repr__(self) -> str:
        """Say whose face this is."""
        return f"<sync {self._target!r}>"


def _named_after(method: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    call.__name__ = getattr(method, "__name__", "call")
    call.__doc__ = method.__doc__
    return call


def _refuse_async(name: str, result: Any) -> Any:
    """Hand on what a plain method returned, unless only async code can use it."""
    if inspect.iscoroutine(result):
        result.close()
    elif not isinstance(result, (AbstractAsyncContextManager, AsyncIterator)):
        return result
    raise ConfigError(f"{name} has no blocking twin: call it in async code, without `.sync`")
