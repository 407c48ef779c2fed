"""Blocking calls of async methods, for ordinary code.

One event loop in one background thread serves all blocking calls of an app in a process. Context variables travel with
the call, so a blocking call inside `ctx.sync.transaction()` joins that transaction. A connection given as `using=` is
used in the thread of the caller.

A class with async methods has a `Sync` subclass, which names each of them once:

    class SyncQueues(Sync["Queues"]):
        pause = Blocking(Queues.pause)

`Blocking` carries the signature over, so type checkers and editors know the blocking calls without a second list.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from holdfast.app.portal import THREAD, Portal
from holdfast.errors import ConfigError
from holdfast.runtime.unawaited import discard

P = ParamSpec("P")
R = TypeVar("R")
Target_co = TypeVar("Target_co", covariant=True)
__all__ = ["THREAD", "Blocking", "Portal", "Sync"]


class Sync(Generic[Target_co]):
    """The blocking counterpart of an object: its async methods as blocking ones, other attributes unchanged.

    An attribute that has a `sync` itself (`app.jobs`) is replaced by that. A call returns what its async counterpart
    returns. A method without a blocking counterpart raises `ConfigError`.
    """

    def __init__(self, target: Target_co, portal: Portal) -> None:
        self.target = target
        self.portal = portal

    @property
    def sync(self) -> Self:
        """This object: `x.sync.sync` is `x.sync`."""
        return self

    if not TYPE_CHECKING:  # a type checker must report an unknown attribute

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the async object."""
            value = getattr(self.target, name)
            if inspect.ismethod(value):
                return _refusing_async(name, value)
            has_sync = isinstance(getattr(cast("object", type(value)), "sync", None), property)
            return value.sync if has_sync else value

    def __dir__(self) -> list[str]:
        """List the names of the async object."""
        return sorted(name for name in dir(self.target) if not name.startswith("_"))

    def __repr__(self) -> str:
        """Show the async object."""
        return f"<sync {self.target!r}>"


class Blocking(Generic[P, R]):
    """A blocking method of a `Sync` class, made from an async method; a descriptor."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self.method = method

    def __get__(self, sync: Sync[Any], _: object = None) -> Callable[P, R]:
        """Return the blocking call of the object's method, which a subclass may have overridden."""
        method: Callable[P, Coroutine[Any, Any, R]] = getattr(sync.target, self.method.__name__)
        portal = sync.portal

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return portal.call(method(*args, **kwargs))

        return call


def _refusing_async(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that raises `ConfigError` instead of returning a result that only async code can use."""

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if inspect.iscoroutine(result):
            discard(result)
        elif not isinstance(result, (AbstractAsyncContextManager, AsyncIterator)):
            return result
        raise ConfigError(f"{name} has no blocking counterpart: call it in async code, without `.sync`")

    return call
