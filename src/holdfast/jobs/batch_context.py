"""The context of a batch: one transaction for the effects and the ends of many calls.

```text
   begin ─▶ lock all leases ─▶ the handler's statements ─▶ the outcomes of all calls ─▶ commit
                 │ some are stale     │ raises
                 ▼                    ▼
          nothing written:      all rolled back
          the handler is called again with the others
```

The handler may have read its list of calls before it opens the transaction. So a stale lease ends this run of the
handler before it can write, and the next run does not see the lost call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from datetime import timedelta
from typing import Any, Generic, Protocol

from holdfast.errors import ConfigError, LeaseLost
from holdfast.jobs.call import Call
from holdfast.jobs.effect import stage_of, transaction_limit
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.outcome import Outcome
from holdfast.runtime.effect import Effect, EffectStage
from holdfast.runtime.type_variables import Connection
from holdfast.store.backend import Backend, Transaction
from holdfast.store.job_rows import Key
from holdfast.store.values import Finish, Verdict


class BatchSettling(Protocol):
    """The keeper of the leases of a batch: it is notified while the transaction ends the jobs."""

    def settling(self) -> None:
        """The jobs are being ended: from now on their leases may end because of that."""

    def settled(self) -> None:
        """The jobs were ended, and their leases with them."""

    def unsettled(self) -> None:
        """The jobs were not ended: the transaction was rolled back."""


class BatchEffect(Effect):
    """The effect of a batch: it commits together with the outcomes of all its calls."""

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        backend: Backend,
        *,
        span: timedelta,
        keeper: BatchSettling | None,
    ) -> None:
        super().__init__(backend, transaction_limit(span))
        self.calls = calls
        self._leases = [call.job.lease for call in calls]
        self.found_lost = False
        """Whether a transaction was refused because some leases are stale."""
        self.written: list[Finish] = []
        """The outcomes that were committed."""
        self._keeper = keeper

    def refuse_second(self) -> None:
        """Raise if the batch has had its transaction."""
        if self.is_committed:
            message = "this batch has had its transaction, which ended its calls: write all effects in one block"
            raise ConfigError(message)

    @asynccontextmanager
    async def begin(self, isolation: Isolation) -> AsyncGenerator[Any]:
        """Open a transaction under all leases; raise `LeaseLost` if one of them is stale."""
        opening = self.backend.transactions.begin_many(self._leases, limit=self.limit, isolation=isolation)
        async with AsyncExitStack() as stack:
            with self._noting_lost():
                transaction = await stack.enter_async_context(opening)
            self._require_all(transaction.held)
            yield transaction
            with self._noting_lost_at_the_end(transaction):
                await stack.aclose()

    @contextmanager
    def begin_blocking(self, isolation: Isolation) -> Generator[Any]:
        """Open the same transaction with blocking calls."""
        opening = self.backend.transactions.begin_many_blocking(self._leases, limit=self.limit, isolation=isolation)
        with ExitStack() as stack:
            with self._noting_lost():
                transaction = stack.enter_context(opening)
            self._require_all(transaction.held)
            yield transaction
            with self._noting_lost_at_the_end(transaction):
                stack.close()

    @contextmanager
    def _noting_lost(self) -> Generator[None]:
        try:
            yield
        except LeaseLost:
            self._lose(self.calls)
            raise

    @contextmanager
    def _noting_lost_at_the_end(self, transaction: Transaction) -> Generator[None]:
        """Note what a store finds stale at the commit, because it locks nothing at the beginning."""
        try:
            yield
        except LeaseLost:
            self._require_all(transaction.held)
            raise

    def _require_all(self, held: frozenset[Key]) -> None:
        if len(held) == len(self.calls):
            return
        lost = [call for call in self.calls if (call.job.seq, call.job.fence) not in held]
        self._lose(lost)
        message = (
            f"{len(lost)} of {len(self.calls)} jobs of this batch, the first {lost[0].id}, are no longer leased; "
            "nothing was written. Let this error end the handler: it is called again with the others"
        )
        raise LeaseLost(message)

    def _lose(self, calls: Sequence[Call[Any]]) -> None:
        self.found_lost = True
        for call in calls:
            call.lease_lost.set()

    def write_end(self, transaction: Any) -> Any:
        """Write the outcomes of all calls: those that the handler has recorded, and completions for the others."""
        self.written = [Finish(lease, call.outcome()) for lease, call in zip(self._leases, self.calls, strict=True)]
        return transaction.finish(self.written)

    def is_accepted(self, verdict: Any) -> bool:
        """Return whether all outcomes were written."""
        return Verdict.LOST not in verdict

    async def refusal(self, verdict: Any) -> Exception:
        """Return the error for outcomes that were refused although the leases are locked."""
        refused = [call.id for call, one in zip(self.calls, verdict, strict=True) if one is Verdict.LOST]
        message = (
            f"{len(refused)} jobs of this batch, the first {refused[0]}, were ended inside its transaction, but "
            "leaving that block ends them too: remove the other end, and record outcomes on calls. Nothing was written"
        )
        return ConfigError(message)

    async def ask(self) -> EffectStage:
        """Ask the store whether the batch was committed."""
        return await stage_of(self.backend, self.written)

    def committing(self) -> None:
        """Record that the outcomes are being written."""
        super().committing()
        if self._keeper is not None:
            self._keeper.settling()

    def committed(self) -> None:
        """Record that they were committed."""
        super().committed()
        self.calls[0].close()
        if self._keeper is not None:
            self._keeper.settled()

    def interrupted(self, error: BaseException) -> None:
        """Record that nothing was committed; if it was, the store refuses later writes."""
        super().interrupted(error)
        if self._keeper is not None:
            self._keeper.unsettled()


class BatchContext(Generic[Connection]):
    """A batch, as its handler sees it.

    `BatchContext[psycopg.AsyncConnection]` declares the type of the connection, as for `Context`.
    """

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        backend: Backend,
        *,
        lease: timedelta,
        keeper: BatchSettling | None = None,
    ) -> None:
        self.calls = list(calls)
        """All calls of the batch, as the handler receives them."""
        self.effect = BatchEffect(tuple(calls), backend, span=lease, keeper=keeper)
        """For the worker."""

    @property
    def sync(self) -> SyncBatchContext[Connection]:
        """The blocking version of this context, for a handler in a thread."""
        return SyncBatchContext(self.effect)

    def transaction(self, *, isolation: Isolation = READ_COMMITTED) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction of the store; writes through its connection take effect once.

        Leaving the block ends all calls, each as it was decided on, and the others as completed; all of it commits
        together. An exception rolls everything back. Raises `LeaseLost` if the lease of a call was lost; let that end
        the handler: it is called again with the others. `isolation` and conflicts: see `Context.transaction`.
        """
        return self.effect.transaction(isolation)

    def outcomes(self, error: BaseException | None) -> list[Outcome | None]:
        """Return the outcome of each call after the handler has returned or raised; None if it is written already."""
        if self.effect.is_committed:
            return [None] * len(self.calls_given)
        if error is None:
            return [call.outcome() for call in self.calls_given]
        shared = len(self.calls_given) > 1
        return [call.outcome_of(error, shared=shared) for call in self.calls_given]

    @property
    def calls_given(self) -> Sequence[Call[Any]]:
        """The calls, even if the handler has changed its list."""
        return self.effect.calls

    def close(self) -> None:
        """Refuse further outcomes: the handler has ended."""
        if not self.effect.is_committed:  # else that has closed them
            self.calls_given[0].close()


class SyncBatchContext(Generic[Connection]):
    """`BatchContext` with blocking calls, for handlers in threads."""

    def __init__(self, effect: BatchEffect) -> None:
        self._effect = effect

    def transaction(self, *, isolation: Isolation = READ_COMMITTED) -> AbstractContextManager[Connection]:
        """Open a transaction of the store, as `BatchContext.transaction` does."""
        return self._effect.blocking_transaction(isolation)
