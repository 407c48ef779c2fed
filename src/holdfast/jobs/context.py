"""What a handler may ask of its surroundings.

A handler that names a parameter of type `Context` is given one. All that it does to the store carries the fence of the
attempt: after the lease was lost it changes nothing and raises `LeaseLost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown
from holdfast.jobs.attempt_lease import AttemptLease, Settling
from holdfast.model.duration import to_span
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.signals import Signal
from holdfast.runtime.text import clean
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing

T = TypeVar("T")
_NOTE_LIMIT = 1024


class Context:
    """An attempt, as its handler sees it."""

    def __init__(self, job: LeasedJob, backend: Backend, *, lease: timedelta, keeper: Settling | None = None) -> None:
        self.job = job
        self._hold = AttemptLease(job, lease, keeper)
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self.cancel_asked = Signal()
        """Set when somebody asked to cancel the job; raise `Cancel`, or go on and complete."""

    @property
    def lease_lost(self) -> Signal:
        """Set when the job is no longer held: stop, nothing you write under the lease will be kept."""
        return self._hold.lease_lost

    @property
    def fence(self) -> int:
        """The number that grows with every claim: hand it to outside systems that can refuse a smaller one."""
        return self.job.fence

    @property
    def result(self) -> object:
        """What the job is to be completed with, where the handler completes it in a transaction."""
        return self._hold.result

    @result.setter
    def result(self, value: object) -> None:
        self._hold.refuse_after_completion("set the result")
        self._hold.result = value

    @property
    def completed_by(self) -> str | None:
        """How the handler has completed the job by itself: "transaction" or "using"; None while it has not."""
        return self._hold.completed_by

    @property
    def sync(self) -> SyncContext:
        """The same for a handler in a thread."""
        return SyncContext(self, self._hold, self._backend, loop=self._loop)

    async def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Tell how far the attempt has come, in percent and in words; raises `LeaseLost`."""
        self._hold.refuse_after_completion("report progress")
        if percent is not None and not 0 <= percent <= 100:  # noqa: PLR2004 - per cent
            message = f"progress is given in percent, from 0 to 100, not {percent!r}"
            raise ConfigError(message)
        text = None if note is None else clean(note, _NOTE_LIMIT)
        self._hold.require_held(await self._backend.jobs.progress(self._hold.lease, percent, text))

    async def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease to `duration` from now; done by the worker anyway, needed only before a long silence."""
        self._hold.refuse_after_completion("extend the lease")
        span = self._hold.span if duration is None else to_span(duration, "duration")
        self._hold.require_held(await self._backend.jobs.extend(self._hold.lease, span))

    @asynccontextmanager
    async def transaction(self, *, completes: bool = True) -> AsyncGenerator[Any]:
        """Open a transaction of the store; what is written through its connection takes effect once.

        Leaving the block completes the job, with `ctx.result` as its result, and commits both together. An exception
        rolls both back. With `completes=False` only the fence is checked, and the job goes on.
        """
        hold = self._hold
        hold.refuse_after_completion("open a transaction")
        refuse_inside(self._backend)
        try:
            async with self._backend.transactions.begin(hold.lease, limit=hold.transaction_limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                if completes:
                    hold.settling()
                    try:
                        hold.require(await transaction.complete(hold.lease, hold.result_text()))
                    except LeaseLost:
                        hold.completion_refused(await self._backend.jobs.verify(hold.lease))  # joins the transaction
                        raise
                failpoint("before_commit")
            failpoint("after_commit")
        except OutcomeUnknown as unknown:
            with hold.unsettled_unless_done(unknown):
                if not completes or await self._backend.jobs.verify(hold.lease) is not Standing.COMPLETED:
                    raise
        except BaseException:
            hold.unsettled()
            raise
        if completes:
            hold.settled()

    async def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction: it is completed when, and only if, that one commits."""
        hold = self._hold
        hold.refuse_after_completion("complete the job")
        finish = Finish(hold.lease, Completed(hold.result_text(result)))
        (verdict,) = await self._backend.transactions.join(using).finish([finish])
        hold.completing(verdict)

    def committed(self) -> None:
        """Note that the caller's transaction has committed."""
        self._hold.settled()

    def uncompleted(self) -> None:
        """Take back what `complete` noted: the caller's transaction did not commit."""
        self._hold.unsettled()


class SyncContext:
    """`Context` with blocking calls, for handlers in threads."""

    def __init__(
        self, context: Context, hold: AttemptLease, backend: Backend, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._context = context
        self._hold = hold
        self._backend = backend
        self._loop = loop

    def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Tell how far the attempt has come."""
        self._wait(self._context.progress(percent, note))

    def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease."""
        self._wait(self._context.extend(duration))

    @contextmanager
    def transaction(self, *, completes: bool = True) -> Generator[Any]:
        """Open a transaction of the store, as `Context.transaction` does."""
        self._refuse_in_loop()
        hold = self._hold
        hold.refuse_after_completion("open a transaction")
        refuse_inside(self._backend)
        try:
            with self._backend.transactions.begin_blocking(hold.lease, limit=hold.transaction_limit) as transaction:
                failpoint("before_effect")
                yield transaction.connection
                failpoint("after_effect")
                if completes:
                    hold.settling()
                    try:
                        hold.require(transaction.complete(hold.lease, hold.result_text()))
                    except LeaseLost:
                        standing = self._wait(self._backend.jobs.verify(hold.lease))  # joins the transaction
                        hold.completion_refused(standing)
                        raise
                failpoint("before_commit")
            failpoint("after_commit")
        except OutcomeUnknown as unknown:
            with hold.unsettled_unless_done(unknown):
                if not completes or self._wait(self._backend.jobs.verify(hold.lease)) is not Standing.COMPLETED:
                    raise
        except BaseException:
            hold.unsettled()
            raise
        if completes:
            hold.settled()

    def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction."""
        hold = self._hold
        hold.refuse_after_completion("complete the job")
        hold.completing(self._backend.transactions.complete(hold.lease, hold.result_text(result), using=using))

    def _refuse_in_loop(self) -> None:
        """A blocking call in the loop's own thread would stop every handler beside it, or wait for itself."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            message = "ctx.sync is for handlers in threads: in an `async def`, await ctx itself"
            raise ConfigError(message)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._refuse_in_loop()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def refuse_inside(backend: Backend) -> None:
    """Refuse a transaction inside a transaction: the inner one would wait for the outer one to end."""
    if backend.capabilities.joins_transactions and backend.transactions.is_inside():
        message = "a transaction is open here already: write through its connection, or use a savepoint"
        raise ConfigError(message)
