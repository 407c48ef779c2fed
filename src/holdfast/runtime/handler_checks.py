"""Detect handlers whose call does nothing: generator functions, and functions that return an unawaited coroutine.

Such a call returns before the first line of the body has run. If that counted as success, the job would be lost
silently. Generator functions are rejected at registration; generators and awaitables returned by another function are
detected when it returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import ConfigError

_REMEDY = "remove the `yield`, or register a function that iterates over the generator"


def refuse_generator(handler: Callable[..., Any], owner: str) -> None:
    """Raise `ConfigError` if calling the handler would only create a generator; `owner` names the handler's owner.

    Generator functions are also found behind `functools.partial`, in the `__call__` of an object, and behind a
    decorator that uses `functools.wraps`.
    """
    called = _called(handler)
    if _makes_generator(called):
        raise ConfigError(f"{owner}: {_of(called)}, so calling it runs none of its code: {_REMEDY}")
    while hasattr(called, "__wrapped__"):
        called = _called(called.__wrapped__)
        if _makes_generator(called):
            raise ConfigError(
                f"{owner}: {_of(called)}, and the decorator around it may return before any of its code has run: "
                f"{_REMEDY}. If the decorator exhausts the generator, do not use functools.wraps in it"
            )


def undone_reason(value: object) -> str | None:
    """Return why a handler that returned this value did not run, with the remedy; None if it did run.

    A coroutine is closed, so that Python does not warn about it as well.
    """
    kind = type(value).__name__
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return (
            f"returned {'an' if kind[0] == 'a' else 'a'} {kind} that was never iterated, so its code did not run: "
            "iterate over it in the handler, or in the decorator around it, and return something else"
        )
    if not inspect.isawaitable(value):
        return None
    if inspect.iscoroutine(value):
        value.close()
    return (
        f"returned a {kind} that was never awaited, so its code did not run: "
        "make the handler, or the decorator around it, an `async def` that awaits it"
    )


def _called(handler: Any) -> Any:
    """Return the function that a call of the handler enters first."""
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
