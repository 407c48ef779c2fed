"""The effect of an attempt at a job: it commits together with the job's completion, under the fence of the lease."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from holdfast.errors import ConfigError, LeaseLost
from holdfast.model.isolation import Isolation
from holdfast.model.job import Lease, LeasedJob
from holdfast.model.lease_rules import TRANSACTION_PARTS
from holdfast.model.outcome import Completed
from holdfast.runtime.effect import Effect, EffectStage
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict


def transaction_limit(lease: timedelta) -> timedelta:
    """Return the time limit of a handler's transaction: a third of the lease."""
    return lease / TRANSACTION_PARTS


async def stage_of(backend: Backend, finishes: Sequence[Finish]) -> EffectStage:
    """Ask the store whether outcomes of one transaction were committed: a completion among them proves it for all."""
    for finish in finishes:
        if isinstance(finish.outcome, Completed):
            is_completed = await backend.jobs.verify(finish.lease) is Standing.COMPLETED
            return EffectStage.COMMITTED if is_completed else EffectStage.OPEN
    return EffectStage.OPEN


class Settling(Protocol):
    """The keeper of the lease: it is notified while the handler completes the job in a transaction."""

    def settling(self, seq: int) -> None:
        """The job is being completed: from now on the lease may end because of that."""

    def settled(self, seq: int) -> None:
        """The job was completed, and its lease has ended."""

    def unsettled(self, seq: int) -> None:
        """The job was not completed: the transaction was rolled back."""


class JobEffect(Effect):
    """The effect of one attempt, and whether its handler has completed the job in a transaction."""

    def __init__(self, job: LeasedJob, backend: Backend, *, span: timedelta, keeper: Settling | None) -> None:
        super().__init__(backend, transaction_limit(span))
        self.job = job
        self.span = span
        self.completed_by: str | None = None
        self.result: object = None
        self.stored_text: str | None = None
        """The encoded result that was written with the completion."""
        self._keeper = keeper

    @property
    def lease(self) -> Lease:
        """The lease under which everything is written."""
        return self.job.lease

    def result_text(self, result: object = None) -> str | None:
        """Return the encoded result, to be written with the completion."""
        self.stored_text = encode_result_or_reason(self.result if result is None else result)
        return self.stored_text

    # --- the transaction ----------------------------------------------------------------------------------------------

    def refuse_second(self) -> None:
        """Raise if the handler has already completed the job."""
        self.refuse_after_completion("open a transaction")

    def begin(self, isolation: Isolation) -> AbstractAsyncContextManager[Any]:
        """Open a transaction under the lease."""
        return self.backend.transactions.begin(self.lease, limit=self.limit, isolation=isolation)

    def begin_blocking(self, isolation: Isolation) -> AbstractContextManager[Any]:
        """Open a transaction under the lease, with blocking calls."""
        return self.backend.transactions.begin_blocking(self.lease, limit=self.limit, isolation=isolation)

    def write_end(self, transaction: Any) -> Any:
        """Write the completion, with the result that the handler has set."""
        return transaction.complete(self.lease, self.result_text())

    def is_accepted(self, verdict: Any) -> bool:
        """Return whether the completion was written."""
        return verdict is not Verdict.LOST

    async def refusal(self, verdict: Any) -> Exception:
        """Return `LeaseLost`; `ConfigError` if the job was already completed inside this transaction."""
        del verdict
        if await self.backend.jobs.verify(self.lease) is Standing.COMPLETED:  # joins the transaction
            message = (
                f"job {self.job.id} was completed inside its own transaction, but leaving that block completes it too: "
                "remove the other completion and set ctx.result, or open the block with completes=False. "
                "Nothing was written"
            )
            return ConfigError(message)
        return self._lost()

    async def ask(self) -> EffectStage:
        """Ask the store whether the job is completed under this lease."""
        is_completed = await self.backend.jobs.verify(self.lease) is Standing.COMPLETED
        return EffectStage.COMMITTED if is_completed else EffectStage.OPEN

    def committing(self) -> None:
        """Record that the completion is being written."""
        super().committing()
        if self._keeper is not None:
            self._keeper.settling(self.job.seq)

    def committed(self) -> None:
        """Record that the completion was committed."""
        super().committed()
        self.completed_by = "transaction"
        if self._keeper is not None:
            self._keeper.settled(self.job.seq)

    def interrupted(self, error: BaseException) -> None:
        """Record that no completion was committed; if one was, the store refuses later writes."""
        super().interrupted(error)
        if isinstance(error, LeaseLost):
            self.lease_lost.set()
        self.uncompleted()

    # --- completion in the caller's own transaction -------------------------------------------------------------------

    def completing(self, verdict: Verdict) -> None:
        """Record that the completion was written in the caller's own transaction, which may or may not commit."""
        self.require_held(verdict)
        self.committing()
        self.completed_by = "using"

    def uncompleted(self) -> None:
        """Record that the job is not completed: the transaction was rolled back."""
        self.completed_by = None
        if self._keeper is not None:
            self._keeper.unsettled(self.job.seq)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def require_held(self, verdict: Verdict) -> None:
        """Raise `LeaseLost`, and signal it, if a write was refused."""
        if verdict is Verdict.LOST:
            raise self._lost()

    def _lost(self) -> LeaseLost:
        self.lease_lost.set()
        return LeaseLost(
            f"job {self.job.id} is no longer held under fence {self.job.fence}: its lease expired or was "
            "revoked, and another worker may run it. Nothing was written"
        )

    def refuse_after_completion(self, what: str) -> None:
        """Raise if the handler has already completed the job."""
        if self.completed_by is not None:
            message = f"job {self.job.id} is already completed by its own transaction: it is too late to {what}"
            raise ConfigError(message)
