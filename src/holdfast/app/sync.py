"""The blocking face of what is async: the same names, called from ordinary code.

One event loop in one background thread serves all blocking calls of an app in a process. Context variables travel with
the call, so a blocking call inside `ctx.sync.transaction()` joins that transaction. A connection given as `using=` is
used in the thread of the caller.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast

from holdfast.app.portal import THREAD, Portal
from holdfast.errors import ConfigError

Target = TypeVar("Target")
__all__ = ["THREAD", "Portal", "Sync"]


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
