"""Handlers that can be called and yet do nothing: generators, and coroutines that nobody awaits.

The call of such a function returns at once, before its first line has run. Taken for a success, it would lose the work
without a word. A generator function is refused where it is registered; what another function makes and hands back is
found where it returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import ConfigError

_REMEDY = "leave out the `yield`, or loop over the generator in a function of its own and register that one"


def refuse_generator(handler: Callable[..., Any], owner: str) -> None:
    """Raise `ConfigError` if calling the handler would only make a generator; `owner` says whose handler it is.

    Also found behind `functools.partial`, in the `__call__` of an object, and behind a decorator that tells with
    `functools.wraps` what it wraps.
    """
    called = _called(handler)
    if _makes_generator(called):
        raise ConfigError(f"{owner}: {_of(called)}, so that calling it runs none of its lines: {_REMEDY}")
    while hasattr(called, "__wrapped__"):
        called = _called(called.__wrapped__)
        if _makes_generator(called):
            raise ConfigError(
                f"{owner}: {_of(called)}, and the decorator around it may return before any of its lines has run: "
                f"{_REMEDY}. If the decorator does run it to its end, leave out functools.wraps there"
            )


def undone_reason(value: object) -> str | None:
    """Return why a handler that returned this value has not done its work, with the remedy; None if it has.

    A coroutine is closed, so that Python does not complain of it, too.
    """
    kind = type(value).__name__
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return (
            f"returned {'an' if kind[0] == 'a' else 'a'} {kind} that nobody has run, so its work was not done: make "
            "the handler, or the decorator around it, go through all of it, and return something else"
        )
    if not inspect.isawaitable(value):
        return None
    if inspect.iscoroutine(value):
        value.close()
    return (
        f"returned a {kind} that nobody has awaited, so its work was not done: "
        "make the handler, or the decorator around it, an `async def` that awaits it"
    )


def _called(handler: Any) -> Any:
    """Return the function whose code a call of the handler begins with."""
    while issubclass(type(handler), functools.partial):
        handler = handler.func
    if inspect.isroutine(handler) or inspect.isclass(handler) or not callable(handler):
        return handler
    return type(handler).__call__


def _makes_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _of(function: Any) -> str:
    kind = "an async generator" if inspect.isasyncgenfunction(function) else "a generator"
    return f"{function.__qualname__} is {kind} function"
