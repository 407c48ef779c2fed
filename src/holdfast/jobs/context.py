"""What a handler may ask of its surroundings.

A handler that names a parameter of type `Context` is given one. Everything it does to the store carries the fence of the
attempt: after the lease was lost it changes nothing and raises `LeaseLost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown
from holdfast.jobs.signals import Signal
from holdfast.model.duration import to_span
from holdfast.model.job import LeasedJob
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.runtime.text import clean
from holdfast.store.backend import Backend
from holdfast.store.values import Standing, Verdict

T = TypeVar("T")
_NOTE_LIMIT = 1024
_TRANSACTION_SHARE = 3  # a transaction may last a third of the lease


class Settling(Protocol):
    """Whoever keeps the lease alive, told when the handler completes the job by itself."""

    def settling(self, seq: int) -> None:
        """From now on the lease may vanish because the job is being completed."""

    def settled(self, seq: int) -> None:
        """It was completed: there is no lease any more."""

    def unsettled(self, seq: int) -> None:
        """It was not: the transaction was rolled back."""


class Context:
    """An attempt, as its handler sees it."""

    def __init__(self, job: LeasedJob, backend: Backend, *, lease: timedelta, keeper: Settling | None = None) -> None:
        self.job = job
        self._backend = backend
        self._lease_span = lease
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._result: object = None
        self._completed_by: str | None = None
        self.lease_lost = Signal()
        """Set when the job is no longer held: stop, nothing you write under the lease will be kept."""
        self.cancel_asked = Signal()
        """Set when somebody asked to cancel the job; raise `Cancel`, or go on and complete."""

    @property
    def fence(self) -> int:
        """The number that grows with every claim: hand it to outside systems that can refuse a smaller one."""
        return self.job.fence

    @property
    def result(self) -> object:
        """What the job is to be completed with, where the handler completes it in a transaction."""
        return self._result

    @result.setter
    def result(self, value: object) -> None:
        self._refuse_after_completion("set the result")
        self._result = value

    @property
    def completed_by(self) -> str | None:
        """How the handler has completed the job by itself: "transaction" or "using"; None while it has not."""
        return self._completed_by

    @property
    def sync(self) -> SyncContext:
        """The same for a handler in a thread."""
        return SyncContext(self, self._backend, self._loop)

    async def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Tell how far the attempt has come, in percent and in words; raises `LeaseLost`."""
        self._refuse_after_completion("report progress")
        if percent is not None and not 0 <= percent <= 100:  # noqa: PLR2004 - per cent
            message = f"progress is given in percent, from 0 to 100, not {percent!r}"
            raise ConfigError(message)
        text = None if note is None else clean(note, _NOTE_LIMIT)
        self._require(await self._backend.jobs.progress(self.job.lease, percent, text))

    async def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease to `duration` from now; done by the worker anyway, needed only before a long silence."""
        self._refuse_after_completion("extend the lease")
        span = self._lease_span if duration is None else to_span(duration, "duration")
        self._require(await self._backend.jobs.extend(self.job.lease, span))

    @asynccontextmanager
    async def transaction(self, *, completes: bool = True) -> AsyncIterator[Any]:
        """Open a transaction of the store; what is written through its connection takes effect once.

        Leaving the block completes the job, with `ctx.result` as its result, and commits both together. An exception
        rolls both back. With `completes=False` only the fence is checked, and the job goes on.
        """
        self._refuse_after_completion("open a transaction")
        limit = self._lease_span / _TRANSACTION_SHARE
        try:
            async with self._backend.transactions.begin(self.job.lease, limit=limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                if completes:
                    self._begin_settling()
                    self._require(await transaction.complete(self.job.lease, encode_result_or_reason(self._result)))
                failpoint("before_commit")
            failpoint("after_commit")
        except OutcomeUnknown:
            if completes and await self._backend.jobs.verify(self.job.lease) is Standing.COMPLETED:
                self._settled()
                return
            self._end_settling()
            raise
        except BaseException:
            self._end_settling()
            raise
        if completes:
            self._settled()

    def _settled(self) -> None:
        self._completed_by = "transaction"
        if self._keeper is not None:
            self._keeper.settled(self.job.seq)

    async def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction: it is completed when, and only if, that one commits."""
        self._complete_using(result, using)

    def _complete_using(self, result: object, using: object) -> None:
        self._refuse_after_completion("complete the job")
        text = encode_result_or_reason(self._result if result is None else result)
        self._require(self._backend.transactions.complete(self.job.lease, text, using=using))
        self._begin_settling()
        self._completed_by = "using"

    def uncompleted(self) -> None:
        """Take back what `complete` noted: the caller's transaction did not commit."""
        self._completed_by = None
        self._end_settling()

    def _begin_settling(self) -> None:
        if self._keeper is not None:
            self._keeper.settling(self.job.seq)

    def _end_settling(self) -> None:
        if self._keeper is not None:
            self._keeper.unsettled(self.job.seq)

    def _require(self, verdict: Verdict) -> None:
        if verdict is Verdict.LOST:
            self.lease_lost.set()
            message = (
                f"job {self.job.id} is no longer held under fence {self.job.fence}: its lease expired or was taken "
                "away, and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    def _refuse_after_completion(self, what: str) -> None:
        if self._completed_by is not None:
            message = f"job {self.job.id} is completed already, by its own transaction: it is too late to {what}"
            raise ConfigError(message)


class SyncContext:
    """`Context` with blocking calls, for handlers in threads."""

    def __init__(self, context: Context, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._backend = backend
        self._loop = loop

    def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Tell how far the attempt has come."""
        self._wait(self._context.progress(percent, note))

    def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease."""
        self._wait(self._context.extend(duration))

    @contextmanager
    def transaction(self, *, completes: bool = True) -> Iterator[Any]:
        """Open a transaction of the store, as `Context.transaction` does."""
        context = self._context
        context._refuse_after_completion("open a transaction")  # noqa: SLF001 - two faces of one thing
        limit = context._lease_span / _TRANSACTION_SHARE  # noqa: SLF001
        lease = context.job.lease
        try:
            with self._backend.transactions.begin_blocking(lease, limit=limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                if completes:
                    context._begin_settling()  # noqa: SLF001
                    context._require(transaction.complete(lease, encode_result_or_reason(context.result)))  # noqa: SLF001
                failpoint("before_commit")
            failpoint("after_commit")
        except OutcomeUnknown:
            if completes and self._wait(self._backend.jobs.verify(lease)) is Standing.COMPLETED:
                context._settled()  # noqa: SLF001
                return
            context._end_settling()  # noqa: SLF001
            raise
        except BaseException:
            context._end_settling()  # noqa: SLF001
            raise
        if completes:
            context._settled()  # noqa: SLF001

    def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction."""
        self._context._complete_using(result, using)  # noqa: SLF001

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            work.close()
            message = "ctx.sync is for handlers in threads: in an `async def`, await ctx itself"
            raise ConfigError(message)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
