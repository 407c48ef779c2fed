"""Run verbs in the caller's open transaction, on any SQL store. Nothing is begun, committed or repeated here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from holdfast.backends.sql.using.kinds import ConnectionKind
from holdfast.concurrency.statement_threads import where_it_may_wait
from holdfast.errors import ConfigError, Unsupported
from holdfast.store.steps import PlainRunner, Steps, Verb

T = TypeVar("T")
Recogniser = Callable[[Any], ConnectionKind | None]


class Callers(ABC):
    """The connections that callers pass. A store implements how the steps of a verb run on those of its drivers.

    `in_thread` runs blocking work; unless a store overrides it, lock waits do not block the event loop.
    """

    in_thread = staticmethod(where_it_may_wait)

    def __init__(self, kinds: str, recognisers: Sequence[Recogniser]) -> None:
        """`kinds` is for messages. A recogniser returns None for objects of other libraries."""
        self._kinds = kinds
        self._recognisers = recognisers

    @abstractmethod
    def drive_blocking(self, raw: Any, steps: Steps[T]) -> T:
        """Run a verb in this thread; raises `ConfigError` if the connection does not lead to the store's tables."""

    async def drive(self, raw: Any, steps: Steps[T]) -> T:
        """Run a verb on a connection whose calls are awaited, if the store has such drivers."""
        raise NotImplementedError

    def runner(self, using: object) -> CallersRunner:
        """Return the runner for a caller's connection; raises `ConfigError` if it cannot be used."""
        return CallersRunner(self, self._recognise(using))

    def run_blocking(self, using: object, steps: Steps[T]) -> T:
        """Run a verb now, in this thread."""
        kind = self._recognise(using)
        if kind.is_async:
            message = (
                f"{type(using).__name__} is async, and this call is not: in an `async def`, await ctx.complete(using=…)"
            )
            raise Unsupported(message)
        return self.drive_blocking(kind.reach(), steps)

    def _recognise(self, using: object) -> ConnectionKind:
        for recognise in self._recognisers:
            kind = recognise(using)
            if kind is not None:
                return kind
        cls = type(using)
        name = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
        raise ConfigError(f"using= must be {self._kinds}; not {name}")


class CallersRunner(PlainRunner):
    """`Runner` in one caller's transaction: every kind of verb runs immediately, in that transaction."""

    def __init__(self, callers: Callers, kind: ConnectionKind) -> None:
        self._callers = callers
        self._kind = kind

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb."""
        callers, (reach, is_async) = self._callers, self._kind
        if is_async:
            return await callers.drive(await reach(), verb())
        return await callers.in_thread(lambda: callers.drive_blocking(reach(), verb()))

    def at_once(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb."""
        return self.write(verb)
