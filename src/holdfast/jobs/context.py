"""The context of an attempt at a job.

A handler that names a parameter of type `Context` receives one. Every write of the context carries the fence
of the attempt: after the lease is lost it changes nothing and raises `LeaseLost`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Generic

from holdfast.errors import ConfigError
from holdfast.jobs.effect import JobEffect, Settling
from holdfast.model.duration import to_span
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import JobState, LeasedJob
from holdfast.model.outcome import Completed
from holdfast.runtime.other_queues import CONTEXT_CALLS, AnswersOtherCalls
from holdfast.runtime.payload import decode_result
from holdfast.runtime.signals import Signal
from holdfast.runtime.text import clean
from holdfast.runtime.type_variables import Connection
from holdfast.store.backend import Backend
from holdfast.store.values import Finish

_NOTE_LIMIT = 1024


class Context(AnswersOtherCalls, Generic[Connection]):
    """An attempt, as its handler sees it.

    `Context[psycopg.AsyncConnection]` declares the type of the connection that `transaction` yields; in a handler that
    uses `ctx.sync`, `Context[psycopg.Connection]`. The worker does not check it. `Context` alone means any.
    """

    _other_calls = CONTEXT_CALLS

    def __init__(self, job: LeasedJob, backend: Backend, *, lease: timedelta, keeper: Settling | None = None) -> None:
        self.job = job
        self._effect = JobEffect(job, backend, span=lease, keeper=keeper)
        self._backend = backend
        self.cancel_asked = Signal()
        """Set when a cancel of the job was requested; raise `Cancel`, or go on and complete."""

    @property
    def lease_lost(self) -> Signal:
        """Set when the lease is lost: stop, since nothing can be written under it any more."""
        return self._effect.lease_lost

    @property
    def fence(self) -> int:
        """The fence, which grows with every claim: pass it to external systems that reject a smaller one."""
        return self.job.fence

    @property
    def result(self) -> object:
        """The result of the job, if the handler completes it in a transaction."""
        return self._effect.result

    @result.setter
    def result(self, value: object) -> None:
        self._effect.refuse_after_completion("set the result")
        self._effect.result = value

    @property
    def completed_by(self) -> str | None:
        """How the handler has completed the job: "transaction" or "using"; None if it has not."""
        return self._effect.completed_by

    @property
    def stored_text(self) -> str | None:
        """The encoded result that was written with the completion."""
        return self._effect.stored_text

    @property
    def sync(self) -> SyncContext[Connection]:
        """The blocking version of this context, for a handler in a thread."""
        return SyncContext(self, self._effect)

    async def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Record the progress of the attempt, in percent and as a note; raises `LeaseLost`."""
        self._effect.refuse_after_completion("report progress")
        if percent is not None and not 0 <= percent <= 100:  # noqa: PLR2004 - percent
            message = f"progress must be a percentage from 0 to 100, not {percent!r}"
            raise ConfigError(message)
        text = None if note is None else clean(note, _NOTE_LIMIT)
        self._effect.require_held(await self._backend.jobs.progress(self.job.lease, percent, text))

    async def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease to `duration` from now; the worker extends it anyway while the handler runs."""
        self._effect.refuse_after_completion("extend the lease")
        span = self._effect.span if duration is None else to_span(duration, "duration")
        self._effect.require_held(await self._backend.jobs.extend(self.job.lease, span))

    async def results(self, type: Any = Any) -> list[Any]:  # noqa: A002
        """Return the results of the job's parents, in the order of `after`, each decoded to `type`.

        None for a parent that was not completed: the job is run anyway.
        """
        return [
            decode_result(parent.result, type) if parent.state == JobState.COMPLETED else None
            for parent in await self._backend.insight.parents(self.job.seq)
        ]

    def transaction(
        self, *, completes: bool = True, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction of the store; writes through its connection take effect once.

        Leaving the block completes the job, with `ctx.result` as its result, and commits both together. An exception
        rolls both back. With `completes=False` only the fence is checked, and the job continues.

        `isolation` is its level, whatever the default of the database. If the store rolls it back in favour of another
        one, `TransactionConflict` is raised; let that end the attempt: it is repeated, and does not count.
        """
        return self._effect.transaction(isolation, ends=completes)

    async def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction: it is completed if and when that one commits."""
        effect = self._effect
        effect.refuse_after_completion("complete the job")
        finish = Finish(self.job.lease, Completed(effect.result_text(result)))
        (verdict,) = await self._backend.transactions.join(using).finish([finish])
        effect.completing(verdict)

    def begun(self) -> None:
        """Record that the handler begins, perhaps again: a result that it set before does not count."""
        self._effect.result = None

    def committed(self) -> None:
        """Record that the caller's transaction has committed."""
        self._effect.committed()

    def uncompleted(self) -> None:
        """Undo `complete` in this context: the caller's transaction did not commit."""
        self._effect.uncompleted()


class SyncContext(Generic[Connection]):
    """`Context` with blocking calls, for handlers in threads."""

    def __init__(self, context: Context[Connection], effect: JobEffect) -> None:
        self._context = context
        self._effect = effect

    def progress(self, percent: float | None = None, note: str | None = None) -> None:
        """Record the progress of the attempt."""
        self._effect.wait(self._context.progress(percent, note))

    def extend(self, duration: float | timedelta | None = None) -> None:
        """Extend the lease."""
        self._effect.wait(self._context.extend(duration))

    def results(self, type: Any = Any) -> list[Any]:  # noqa: A002
        """Return the results of the job's parents, as `Context.results` does."""
        return self._effect.wait(self._context.results(type))

    def transaction(
        self, *, completes: bool = True, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[Connection]:
        """Open a transaction of the store, as `Context.transaction` does."""
        return self._effect.blocking_transaction(isolation, ends=completes)

    def complete(self, result: object = None, *, using: object) -> None:
        """Complete the job in the caller's own transaction."""
        effect = self._effect
        effect.refuse_after_completion("complete the job")
        text = effect.result_text(result)
        effect.completing(effect.backend.transactions.complete(effect.lease, text, using=using))
