"""Middleware: functions of users that run around every handler, where the handler runs.

A middleware is a function with one `yield`, at which the handler runs: code before it runs before the handler, code
after it runs if the handler returned, and `except` or `finally` around it if it raised. What a middleware raises ends
the attempt as if the handler had raised it.

```text
   def … yield          in the event loop for an async handler, in the thread of a plain one, in the child process
   async def … yield    in the event loop, around an async handler or around the thread of a plain one
```

The first registered is the outermost; around a plain handler, those with `async def` are outside of all others.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.event import StoredEvent
from holdfast.model.job import Job

Middleware = Callable[["HandlerCall"], Iterator[None] | AsyncIterator[None]]


class HandlerCall(msgspec.Struct, frozen=True):
    """The call of a handler, as middleware sees it: of a task with its job, or of a consumer with its events."""

    kind: Literal["task", "consumer"]
    name: str
    attempt: int
    args: Sequence[Any]
    kwargs: dict[str, Any] = {}
    jobs: tuple[Job, ...] = ()
    """The job of the call; several if the task takes batches."""
    events: tuple[StoredEvent, ...] = ()

    def __repr__(self) -> str:
        """Show what is called, without arguments: they may contain secrets."""
        return f"<HandlerCall {self.kind} {self.name}, attempt {self.attempt}>"


class _Registered(NamedTuple):
    function: Any
    enter: Callable[[HandlerCall], Any]
    is_async: bool


class Middlewares:
    """The middleware of an app, the outermost first."""

    def __init__(self) -> None:
        self._all: tuple[_Registered, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any; without, handlers are called directly."""
        return bool(self._all)

    def add(self, function: object) -> None:
        """Add a middleware inside of those that are there; raises `ConfigError` if it is not of the right form."""
        if inspect.isgeneratorfunction(function):
            one = _Registered(function, contextmanager(function), is_async=False)
        elif inspect.isasyncgenfunction(function):
            one = _Registered(function, asynccontextmanager(function), is_async=True)
        else:
            name = getattr(function, "__qualname__", repr(function))
            remedy = "write a function with one `yield`, at which the handler runs, without @contextmanager"
            raise ConfigError(f"@app.middleware: {name} has no `yield`: {remedy}")
        if all(known.function is not function for known in self._all):
            self._all = (*self._all, one)

    @property
    def needs_loop(self) -> bool:
        """Whether some of it runs in an event loop, even around plain functions."""
        return any(one.is_async for one in self._all)

    async def around(self, call: HandlerCall, run: Callable[[], Awaitable[Any]]) -> Any:
        """Await an async handler inside all middleware."""
        value = None
        async with AsyncExitStack() as stack:
            for one in self._all:
                await _enter(stack, one, call)
            value = await run()
        return value  # noqa: RET504 - an exit may suppress the error

    def around_plain(self, call: HandlerCall, run: Callable[[], Any]) -> Any:
        """Call a plain function inside the plain middleware."""
        value = None
        with ExitStack() as stack:
            for one in self._all:
                if not one.is_async:
                    stack.enter_context(one.enter(call))
            value = run()
        return value  # noqa: RET504 - an exit may suppress the error

    async def around_thread(
        self, call: HandlerCall, run: Callable[[], Any], start: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Any:
        """Start a plain function in a thread, where the plain middleware runs too, inside the async middleware."""
        value = None
        async with AsyncExitStack() as stack:
            for one in self._all:
                if one.is_async:
                    await _enter(stack, one, call)
            value = await start(partial(self.around_plain, call, run))
        return value  # noqa: RET504 - an exit may suppress the error


async def _enter(stack: AsyncExitStack, one: _Registered, call: HandlerCall) -> None:
    if one.is_async:
        await stack.enter_async_context(one.enter(call))
    else:
        stack.enter_context(one.enter(call))
