"""Verbs without I/O, and the runners that execute them.

A verb is a generator. It yields requests that only its store understands and receives the answers, so one definition
runs on an async connection, on a blocking one, in a handler's transaction and in the caller's transaction. Rules above
the port compose the store's generators with `yield from` and never see a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]
Verb = Callable[[], Steps[T]]


class Runner(Protocol):
    """Runs verbs. A verb is passed as a function that starts it, because it may be started again."""

    def once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that is one writing statement, which commits by itself."""
        ...

    def write(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one transaction."""
        ...

    def look(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that is one reading statement."""
        ...

    def read(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one snapshot."""
        ...
