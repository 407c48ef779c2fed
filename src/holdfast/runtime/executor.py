"""Where a handler runs, of a task or of a consumer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

from holdfast.errors import ConfigError


class Executor(StrEnum):
    """Where a handler runs: in the event loop, in a thread, or in a child process."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


ExecutorSetting = Executor | Literal["loop", "thread", "process"]
"""What the setting `executor` accepts."""


def choose_executor(handler: Callable[..., Any], owner: str, executor: str | None) -> Executor:
    """Return where a handler runs; `owner` names it in errors. Raises `ConfigError` for what cannot work."""
    is_async = inspect.iscoroutinefunction(handler)
    if executor is None:
        return Executor.LOOP if is_async else Executor.THREAD
    try:
        chosen = Executor(executor)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in Executor)
        message = f"{owner}: executor={executor!r} is not known: choose one of {known}, or leave it out"
        raise ConfigError(message) from None
    if chosen is Executor.LOOP and not is_async:
        message = f'{owner}: executor="loop" needs an `async def`; a plain function would block the event loop'
        raise ConfigError(message)
    if chosen is Executor.THREAD and is_async:
        message = f'{owner}: executor="thread" needs a plain function; an `async def` runs in the event loop'
        raise ConfigError(message)
    return chosen


def reference_of(handler: object) -> tuple[str, str] | None:
    """Return module and qualified name under which a child process finds a handler; None if it has no such place."""
    name: str | None = getattr(handler, "__qualname__", None)  # partials and other objects have none
    return None if name is None or "<" in name else (str(getattr(handler, "__module__", "")), name)
