"""What an attempt knows of its own hold on the job; shared by the async and the blocking face of the context."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown
from holdfast.model.job import Lease, LeasedJob
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.runtime.signals import Signal
from holdfast.store.values import Standing, Verdict

_TRANSACTION_SHARE = 3  # a transaction may last a third of the lease


class Settling(Protocol):
    """Whoever keeps the lease alive, told when the handler completes the job by itself."""

    def settling(self, seq: int) -> None:
        """From now on the lease may vanish because the job is being completed."""

    def settled(self, seq: int) -> None:
        """It was completed: there is no lease any more."""

    def unsettled(self, seq: int) -> None:
        """It was not: the transaction was rolled back."""


class AttemptLease:
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
        self.require_held(verdict)
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

    @contextmanager
    def unsettled_unless_done(self, unknown: OutcomeUnknown) -> Generator[None]:
        """Ask inside the block whether the completion was committed, and raise if not; see `still_unknown`."""
        try:
            with still_unknown(unknown):
                yield
        except BaseException:
            self.unsettled()
            raise

    def require_held(self, verdict: Verdict) -> None:
        """Raise `LeaseLost`, and signal it, if a write was refused."""
        if verdict is Verdict.LOST:
            self.lease_lost.set()
        self.require(verdict)

    def require(self, verdict: Verdict) -> None:
        """Raise `LeaseLost` if a write was refused."""
        if verdict is Verdict.LOST:
            message = (
                f"job {self.job.id} is no longer held under fence {self.job.fence}: its lease expired or was taken "
                "away, and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    def completion_refused(self, standing: Standing) -> None:
        """Signal that the lease is lost; raise if it is not, but the same transaction has completed the job before."""
        if standing is Standing.COMPLETED:
            message = (
                f"job {self.job.id} was completed inside its own transaction, and leaving that block completes the job "
                "by itself: leave out the other completion and set ctx.result, or open the block with completes=False. "
                "Nothing was written"
            )
            raise ConfigError(message)
        self.lease_lost.set()

    def refuse_after_completion(self, what: str) -> None:
        """Raise if the handler has completed the job already."""
        if self.completed_by is not None:
            message = f"job {self.job.id} is completed already, by its own transaction: it is too late to {what}"
            raise ConfigError(message)


@contextmanager
def still_unknown(unknown: OutcomeUnknown) -> Generator[None]:
    """Ask inside the block what became of a commit. If that fails, too, the commit may have been done all the same.

    So it stays `unknown`: the error of the check would say that nothing was written.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception as error:
        raise unknown from error
