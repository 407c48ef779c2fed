"""What an attempt knows of its own hold on the job; shared by the async and the blocking face of the context."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from holdfast.errors import ConfigError, LeaseLost
from holdfast.model.job import Lease, LeasedJob
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.runtime.signals import Signal
from holdfast.store.values import Verdict

_TRANSACTION_SHARE = 3  # a transaction may last a third of the lease


class Settling(Protocol):
    """Whoever keeps the lease alive, told when the handler completes the job by itself."""

    def settling(self, seq: int) -> None:
        """From now on the lease may vanish because the job is being completed."""

    def settled(self, seq: int) -> None:
        """It was completed: there is no lease any more."""

    def unsettled(self, seq: int) -> None:
        """It was not: the transaction was rolled back."""


class Hold:
    """The lease of one attempt, and whether the handler has completed the job by itself."""

    def __init__(self, job: LeasedJob, span: timedelta, keeper: Settling | None) -> None:
        self.job = job
        self.span = span
        self.lease_lost = Signal()
        self.completed_by: str | None = None
        self.result: object = None
        self._keeper = keeper

    @property
    def lease(self) -> Lease:
        """The handle under which everything is written."""
        return self.job.lease

    @property
    def transaction_limit(self) -> timedelta:
        """How long a transaction of the handler may last."""
        return self.span / _TRANSACTION_SHARE

    def result_text(self, result: object = None) -> str | None:
        """Return the result as it is to be stored."""
        return encode_result_or_reason(self.result if result is None else result)

    def settling(self) -> None:
        """Note that the completion is being written."""
        if self._keeper is not None:
            self._keeper.settling(self.job.seq)

    def completing(self, verdict: Verdict) -> None:
        """Note that the completion was written in the caller's own transaction, which may or may not commit."""
        self.require(verdict)
        self.settling()
        self.completed_by = "using"

    def settled(self) -> None:
        """Note that the completion was committed."""
        self.completed_by = "transaction"
        if self._keeper is not None:
            self._keeper.settled(self.job.seq)

    def unsettled(self) -> None:
        """Note that the completion was rolled back."""
        self.completed_by = None
        if self._keeper is not None:
            self._keeper.unsettled(self.job.seq)

    def require(self, verdict: Verdict) -> None:
        """Raise `LeaseLost` if a write was refused."""
        if verdict is Verdict.LOST:
            self.lease_lost.set()
            message = (
                f"job {self.job.id} is no longer held under fence {self.job.fence}: its lease expired or was taken "
                "away, and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    def refuse_after_completion(self, what: str) -> None:
        """Raise if the handler has completed the job already."""
        if self.completed_by is not None:
            message = f"job {self.job.id} is completed already, by its own transaction: it is too late to {what}"
            raise ConfigError(message)
