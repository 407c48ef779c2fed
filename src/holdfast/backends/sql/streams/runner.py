"""What runs the verbs of streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from holdfast.store.steps import Steps

T = TypeVar("T")
Verb = Callable[[], Steps[T]]


class StreamRunner(Protocol):
    """Runs verbs. A verb is passed as a function that starts it, because a transaction may have to be repeated."""

    def once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb whose writing statement commits by itself."""
        ...

    def write(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one transaction."""
        ...

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that asks all its statements together: one transaction, in one round trip where possible."""
        ...

    def look(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb that is one reading statement."""
        ...

    def read(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in one snapshot."""
        ...
