"""Report a call of an async method that was never awaited, with its place in the program.

Python warns too, but its warning does not name the consequence, and is easily missed. The result of a call stays a
coroutine, and the method a coroutine function, as task groups and web frameworks expect:

```text
   call ──▶ coroutine ──▶ started: nothing to report
                └─▶ freed before it was started: reported; one that was cancelled or discarded before is not
```
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
import weakref
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import FrameType, MethodType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
Own = TypeVar("Own")
_logger: Final = logging.getLogger("holdfast.jobs")


class MethodCall:
    """A call of an async method: an argument of its coroutine, freed with it. The method sets `is_started` first."""

    __slots__ = ("_code", "_line", "_method", "_owner", "coroutine", "is_started")

    def __init__(self, owner: object, method: _Method, frame: FrameType) -> None:
        self.is_started = False
        self.coroutine: Callable[[], object] | None = None
        self._owner = owner
        self._method = method
        self._code = frame.f_code
        self._line = frame.f_lineno

    def __del__(self) -> None:
        """Report the call if its coroutine was freed unstarted; one into which an error was thrown still exists."""
        if not self.is_started and self.coroutine is not None and self.coroutine() is None:
            self._method.report(self._owner, self._code.co_filename, self._line)


def reports_unawaited(
    consequence: str, owner: str = "app"
) -> Callable[
    [Callable[Concatenate[Own, MethodCall, P], Coroutine[Any, Any, R]]],
    Callable[Concatenate[Own, P], Coroutine[Any, Any, R]],
]:
    """Make an async method, which takes its `MethodCall` first, log an error for each call that is not awaited.

    The log has the `__name__` of the object, or else `owner`.
    There is no second coroutine around that of the method: a thousand concurrent calls would pay for it.
    """

    def decorate(
        method: Callable[Concatenate[Own, MethodCall, P], Coroutine[Any, Any, R]],
    ) -> Callable[Concatenate[Own, P], Coroutine[Any, Any, R]]:
        return cast("Callable[Concatenate[Own, P], Coroutine[Any, Any, R]]", _Method(method, consequence, owner))

    return decorate


def discard(coroutine: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine that is not going to be awaited, without a report; `close` frees it only later."""
    with contextlib.suppress(GeneratorExit, StopIteration):
        coroutine.throw(GeneratorExit)


class _Method:
    """Like a function, with the code of the method: so `inspect.iscoroutinefunction` recognises it on every Python."""

    def __init__(self, method: Any, consequence: str, owner_name: str) -> None:
        update_wrapper(self, method)
        self.__code__ = method.__code__
        self.__defaults__ = method.__defaults__
        self.__kwdefaults__ = method.__kwdefaults__
        signature = inspect.signature(method)
        owner, _, *others = signature.parameters.values()
        self.__signature__ = signature.replace(parameters=[owner, *others])
        self._begin = method
        self._consequence = consequence
        self._owner = owner_name

    def __call__(self, owner: object, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of the call."""
        call = MethodCall(owner, self, sys._getframe(1))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        coroutine = self._begin(owner, call, *args, **kwargs)
        call.coroutine = weakref.ref(coroutine)
        return cast("Coroutine[Any, Any, Any]", coroutine)

    def __get__(self, owner: object | None, _: object = None) -> Any:
        """Return the method, bound to its object."""
        return self if owner is None else MethodType(self, owner)

    def report(self, owner: object, file: str, line: int) -> None:
        """Log that a call was not awaited."""
        name, method = getattr(owner, "__name__", self._owner), self._begin.__name__
        _logger.error(
            "%s.%s(…) in %s, line %d, was not awaited: %s. Write `await %s.%s(…)`, or in blocking code `%s.sync.%s(…)`",
            *(name, method, file, line, self._consequence, name, method, name, method),
        )
