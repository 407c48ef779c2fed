"""The blocking face of what is async: the same names, called from ordinary code.

One event loop in one background thread serves all blocking calls of an app in a process. Context variables travel with
the call, so a blocking call inside `ctx.sync.transaction()` joins that transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")


class Portal:
    """An event loop in a thread of its own; a forked child gets a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, self._started()).result()
        work.close()
        message = "`.sync` would block the running event loop: in async code, await the call without `.sync`"
        raise ConfigError(message)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._process not in {0, os.getpid()}:
            self._lock = threading.Lock()  # the parent's may have been held when it forked
            self._loop = None
        with self._lock:
            if self._loop is None:
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-sync", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End the thread, if it runs in this process."""
        with self._lock:
            if self._loop is not None and self._thread is not None and self._process == os.getpid():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._loop = self._thread = None


class Sync:
    """An object's async methods as blocking ones; all else is passed on, objects of Holdfast wrapped likewise."""

    def __init__(self, target: object, portal: Portal) -> None:
        self._target = target
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        """Return the blocking twin of an attribute."""
        value = getattr(self._target, name)
        if inspect.iscoroutinefunction(value):
            return self._blocking(value)
        return value

    def __dir__(self) -> list[str]:
        """Offer the names of the async object."""
        return sorted(name for name in dir(self._target) if not name.startswith("_"))

    def __repr__(self) -> str:
        """Say whose face this is."""
        return f"<sync {self._target!r}>"

    def _blocking(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._portal.call(method(*args, **kwargs))

        call.__name__ = getattr(method, "__name__", "call")
        call.__doc__ = method.__doc__
        return call
