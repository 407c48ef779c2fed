"""The effect of one attempt: what its handler writes in `ctx.transaction()`.

The effect of a job commits together with its completion, that of an event together with the consumer's position. Both
have the same life cycle:

```text
   OPEN ── begin, the handler's block ──▶ COMMITTING ──▶ COMMITTED
     ▲                │                       │  │
     │     it raises  │         rolled back   │  └── no reply: the store is asked, and answers COMMITTED or OPEN;
     └────────────────┴───────────────────────┘      as long as it does not answer, the effect stays COMMITTING
```

The life cycle is written once, as a coroutine. In a thread the same coroutine runs over blocking calls, so that it
never suspends and is driven to its end without an event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, TypeVar

from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.model.isolation import Isolation, check_isolation
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.signals import Signal
from holdfast.store.backend import Backend

T = TypeVar("T")
_TOGETHER = 1_000  # children that are decided on after a commit; the rest is left to the workers


class EffectStage(Enum):
    """How far an effect has come."""

    OPEN = "nothing is committed"
    COMMITTING = "the commit was sent, and its outcome is unknown"
    COMMITTED = "the effect and the end of the attempt are committed"


class Effect(ABC):
    """One attempt's effect. A subclass says under which lease it is written and which end commits with it."""

    def __init__(self, backend: Backend, limit: timedelta) -> None:
        self.backend = backend
        self.limit = limit
        """How long a transaction may last."""
        self.loop = asyncio.get_running_loop()
        self.lease_lost = Signal()
        self.stage = EffectStage.OPEN

    # --- what a subclass says -----------------------------------------------------------------------------------------

    @abstractmethod
    def refuse_second(self) -> None:
        """Raise if the attempt has had its transaction."""

    @abstractmethod
    def begin(self, isolation: Isolation) -> AbstractAsyncContextManager[Any]:
        """Open a transaction of the store under the attempt's lease."""

    @abstractmethod
    def begin_blocking(self, isolation: Isolation) -> AbstractContextManager[Any]:
        """The same for a thread."""

    @abstractmethod
    def write_end(self, transaction: Any) -> Any:
        """Write the fenced end of the attempt; return the store's verdict, awaitable in an async transaction."""

    @abstractmethod
    def is_accepted(self, verdict: Any) -> bool:
        """Return whether a verdict says that the end was written."""

    @abstractmethod
    async def refusal(self, verdict: Any) -> Exception:
        """Return what is to be raised for a verdict that refuses; may ask the store, inside the transaction."""

    @abstractmethod
    async def ask(self) -> EffectStage:
        """Ask the store what became of the commit; COMMITTING if the store does not answer."""

    @property
    def is_committed(self) -> bool:
        """Whether the effect and the end of the attempt are committed."""
        return self.stage is EffectStage.COMMITTED

    # --- stages -------------------------------------------------------------------------------------------------------

    def committing(self) -> None:
        """Note that the end is about to be written."""
        self.stage = EffectStage.COMMITTING

    def committed(self) -> None:
        """Note that effect and end are committed."""
        self.stage = EffectStage.COMMITTED

    def interrupted(self, error: BaseException) -> None:
        """Note that the block did not end with a commit, as far as is known here."""
        if not isinstance(error, OutcomeUnknown | asyncio.CancelledError):
            self.stage = EffectStage.OPEN

    # --- the two faces ------------------------------------------------------------------------------------------------

    def transaction(self, isolation: Isolation, *, ends: bool = True) -> AbstractAsyncContextManager[Any]:
        """Return the transaction for a coroutine; `ends`: leaving it also writes the end of the attempt."""
        return _Life(self, _AWAITED, check_isolation(isolation), ends=ends)

    @contextmanager
    def blocking_transaction(self, isolation: Isolation, *, ends: bool = True) -> Generator[Any]:
        """Return the same for a thread."""
        self.refuse_in_loop()
        life = _Life(self, _BlockingCalls(self.loop), check_isolation(isolation), ends=ends)
        connection = _driven(life.__aenter__())
        try:
            yield connection
        except BaseException as error:
            _driven(life.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            _driven(life.__aexit__(None, None, None))

    def refuse_in_loop(self) -> None:
        """Refuse a blocking call in the event loop's own thread: it would block all handlers there, or itself."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self.loop:
            message = "ctx.sync is for handlers in threads: in an `async def`, await ctx itself"
            raise ConfigError(message)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop and block this thread until it ends."""
        try:
            self.refuse_in_loop()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


class _EffectCalls(Protocol):
    """How the life cycle calls the store."""

    def begin(self, effect: Effect, isolation: Isolation) -> AbstractAsyncContextManager[Any]: ...

    async def verdict(self, written: Any) -> Any: ...

    async def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class _AwaitedCalls:
    """The store is awaited."""

    def begin(self, effect: Effect, isolation: Isolation) -> AbstractAsyncContextManager[Any]:
        return effect.begin(isolation)

    async def verdict(self, written: Any) -> Any:
        return await written

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work


_AWAITED = _AwaitedCalls()


class _BlockingCalls:
    """The store is called from this thread; what exists only as a coroutine runs in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @asynccontextmanager
    async def begin(self, effect: Effect, isolation: Isolation) -> AsyncGenerator[Any]:
        with effect.begin_blocking(isolation) as transaction:
            yield transaction

    async def verdict(self, written: Any) -> Any:
        return written

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Life:
    """The life cycle as a context manager: a class, because an async generator costs an effect some 8 µs."""

    def __init__(self, effect: Effect, calls: _EffectCalls, isolation: Isolation, *, ends: bool) -> None:
        self._effect = effect
        self._calls = calls
        self._isolation: Isolation = isolation
        self._ends = ends

    async def __aenter__(self) -> Any:
        effect = self._effect
        effect.refuse_second()
        refuse_nested(effect.backend)
        self._opening = self._calls.begin(effect, self._isolation)
        try:
            self._transaction = await self._opening.__aenter__()
        except BaseException as error:
            effect.interrupted(error)
            raise
        try:
            failpoint("before_effect")
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self._transaction.connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        effect = self._effect
        try:
            if error is not None:
                await self._opening.__aexit__(kind, error, trace)
                effect.interrupted(error)
                return
            try:
                await self._end()
            except OutcomeUnknown as unknown:
                with still_unknown(unknown):
                    if effect.stage is EffectStage.COMMITTING:
                        effect.stage = await self._calls.run(effect.ask())
                    if effect.stage is not EffectStage.COMMITTED:
                        raise
        except BaseException as raised:
            effect.interrupted(raised)
            raise
        if self._ends:
            effect.committed()
        if self._transaction.concerns_children:
            # Outside the block above: what fails here, for instance in a thread when the loop ends, undoes no commit.
            with suppress(Exception):
                await self._calls.run(settle_children(effect.backend))

    async def _end(self) -> None:
        """Write the end of the attempt and commit, after a block that did not raise."""
        effect, transaction = self._effect, self._transaction
        try:
            failpoint("after_effect")
            if self._ends:
                effect.committing()
                verdict = await self._calls.verdict(effect.write_end(transaction))
                if not effect.is_accepted(verdict):
                    raise await self._calls.run(effect.refusal(verdict))  # noqa: TRY301 - inside the transaction
            failpoint("before_commit")
        except BaseException as error:
            await self._opening.__aexit__(type(error), error, error.__traceback__)
            raise
        await self._opening.__aexit__(None, None, None)
        failpoint("after_commit")


def _driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    message = "a blocking transaction has suspended"
    raise RuntimeError(message)


@contextmanager
def still_unknown(unknown: OutcomeUnknown) -> Generator[None]:
    """Ask the store inside the block what became of a commit; if it cannot be asked, raise `unknown`.

    The error of the question would say that nothing was written, and the commit may have happened.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception as error:
        raise unknown from error


async def settle_children(backend: Backend) -> None:
    """Decide on the children of jobs that a committed transaction has ended; what fails here is left to the workers."""
    with suppress(Exception):
        await backend.jobs.promote(_TOGETHER)


def is_inside(backend: Backend) -> bool:
    """Return whether the calling task or thread is inside a handler's transaction of this store."""
    return backend.capabilities.commits_effects and backend.transactions.is_inside()


def refuse_nested(backend: Backend) -> None:
    """Refuse a transaction inside a transaction: the inner one would wait for the outer one to end."""
    if is_inside(backend):
        message = "a transaction is open here already: write through its connection, or use a savepoint"
        raise ConfigError(message)
