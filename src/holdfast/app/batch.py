"""Effects and outcomes of many claimed jobs in one transaction, for callers that run their own loop.

One commit per job is the simple way (`ClaimedJob.context().transaction()`); where commits are expensive, a batch shares
one:

```text
   begin ─▶ which leases are valid? ─▶ the caller's statements ─▶ the outcomes of the jobs ─▶ commit
                  │                            │ raises                 │ stale
                  ▼                            ▼                        ▼
             batch.held, batch.lost    all rolled back         all rolled back, LeaseLost
```

A lease that is found valid stays valid until the commit: the store keeps its row locked. So effects written only for
`batch.held` are never written for a job that another worker has claimed meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.app.claimed_job import ClaimedJob, failed_outcome, retry_outcome
from holdfast.errors import ConfigError, LeaseLost
from holdfast.jobs.effect import stage_of, transaction_limit
from holdfast.model.isolation import Isolation
from holdfast.model.job import Lease
from holdfast.model.outcome import Completed, Outcome
from holdfast.runtime.effect import Effect, EffectStage
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.store.backend import Backend, Transaction
from holdfast.store.values import Finish, Verdict

if TYPE_CHECKING:
    from holdfast.app.app import App


class Batch:
    """An open transaction over claimed jobs. Outcomes recorded here are written when the block is left.

    A job in `held` without a recorded outcome keeps its lease.
    """

    def __init__(self, connection: Any, held: Sequence[ClaimedJob], lost: Sequence[ClaimedJob]) -> None:
        self.connection = connection
        """The connection for the effects."""
        self.held = list(held)
        """The jobs whose leases are valid until the commit; write the effects of these only."""
        self.lost = list(lost)
        """The jobs whose leases were lost before."""
        self._leases = {job.job.lease for job in held}
        self._finishes: dict[str, Finish] = {}
        self._is_closed = False

    def complete(self, job: ClaimedJob, result: object = None) -> None:
        """Record that the job is completed; raises `LeaseLost` if it is not in `held`."""
        self._record(job, Completed(encode_result_or_reason(result)))

    def retry(self, job: ClaimedJob, error: BaseException | str, delay: float | timedelta | None = None) -> None:
        """Record that the attempt failed; the job runs again as its task's policy says, or after `delay`."""
        self._record(job, retry_outcome(job, error, delay))

    def fail(self, job: ClaimedJob, error: BaseException | str) -> None:
        """Record that the job ends as failed, even if attempts are left."""
        self._record(job, failed_outcome(error))

    def _record(self, job: ClaimedJob, outcome: Outcome) -> None:
        if self._is_closed:
            message = (
                f"job {job.id}: its batch has ended, so an outcome recorded now would never be written. Record it "
                "inside the `with` block; afterwards end the job itself, as with `await job.complete()`"
            )
            raise ConfigError(message)
        if job.job.lease not in self._leases:
            message = f"job {job.id} is not in batch.held. Nothing was written"
            raise LeaseLost(message)
        if job.id in self._finishes:
            message = f"job {job.id}: its outcome is recorded already; an attempt ends once"
            raise ConfigError(message)
        self._finishes[job.id] = Finish(job.job.lease, outcome)

    @property
    def finishes(self) -> list[Finish]:
        """The outcomes to write."""
        return list(self._finishes.values())

    def close(self) -> None:
        """Refuse further outcomes."""
        self._is_closed = True


class ClaimedEffect(Effect):
    """The effect of claimed jobs: it commits together with the outcomes that the caller has recorded."""

    batch: Batch

    def __init__(self, backend: Backend, jobs: Sequence[ClaimedJob]) -> None:
        super().__init__(backend, min(transaction_limit(job.span) for job in jobs))
        self._jobs = jobs

    def refuse_second(self) -> None:
        """Do nothing: there is one effect for each transaction."""

    @asynccontextmanager
    async def begin(self, isolation: Isolation) -> AsyncGenerator[Any]:
        """Open a transaction under all leases that are valid."""
        opening = self.backend.transactions.begin_many(self._leases, limit=self.limit, isolation=isolation)
        async with opening as transaction:
            self.batch = _sorted(transaction, self._jobs)
            yield transaction

    @contextmanager
    def begin_blocking(self, isolation: Isolation) -> Generator[Any]:
        """Open the same transaction with blocking calls."""
        opening = self.backend.transactions.begin_many_blocking(self._leases, limit=self.limit, isolation=isolation)
        with opening as transaction:
            self.batch = _sorted(transaction, self._jobs)
            yield transaction

    @property
    def _leases(self) -> list[Lease]:
        return [job.job.lease for job in self._jobs]

    def write_end(self, transaction: Any) -> Any:
        """Write the recorded outcomes; jobs without one keep their leases."""
        return transaction.finish(self.batch.finishes)

    def is_accepted(self, verdict: Any) -> bool:
        """Return whether all outcomes were written."""
        return Verdict.LOST not in verdict

    async def refusal(self, verdict: Any) -> Exception:
        """Return `LeaseLost`."""
        refused = zip(self.batch.finishes, verdict, strict=True)
        lost = [finish.lease.job_id for finish, one in refused if one is Verdict.LOST]
        message = f"{len(lost)} jobs of the batch, the first {lost[0]}, are no longer leased. Nothing was written"
        return LeaseLost(message)

    async def ask(self) -> EffectStage:
        """Ask the store whether the batch was committed."""
        return await stage_of(self.backend, self.batch.finishes)


AsyncBatch = AbstractAsyncContextManager[Batch]
BlockingBatch = AbstractContextManager[Batch]


@asynccontextmanager
async def open_batch(app: App, jobs: Sequence[ClaimedJob], isolation: Isolation) -> AsyncGenerator[Batch]:
    """Open a transaction over claimed jobs; see `App.batch`."""
    effect = await _effect(app, jobs)
    async with effect.transaction(isolation):
        with closing(effect.batch) as batch:
            yield batch


@contextmanager
def open_batch_blocking(app: App, jobs: Sequence[ClaimedJob], isolation: Isolation) -> Generator[Batch]:
    """The same for blocking code, with a blocking connection; blocking calls of the app inside it join it."""
    effect = app.portal.call(_effect(app, jobs))
    with effect.blocking_transaction(isolation), closing(effect.batch) as batch:
        yield batch


async def _effect(app: App, jobs: Sequence[ClaimedJob]) -> ClaimedEffect:
    _check(app, jobs)
    return ClaimedEffect(await app.opened(), jobs)


def _check(app: App, jobs: Sequence[ClaimedJob]) -> None:
    if not jobs:
        message = "a batch needs at least one claimed job: pass what app.claim(…) returned, unless that is empty"
        raise ConfigError(message)
    if len({job.id for job in jobs}) < len(jobs):
        message = "a job is in the batch twice: an attempt ends once"
        raise ConfigError(message)
    if not all(job.belongs_to(app) for job in jobs):
        message = "a job of the batch was claimed by another app: its store is not the one that this batch writes to"
        raise ConfigError(message)


def _sorted(transaction: Transaction, jobs: Sequence[ClaimedJob]) -> Batch:
    """Return the batch: the jobs whose leases the transaction holds, and the others."""
    held, lost = list[ClaimedJob](), list[ClaimedJob]()
    for job in jobs:
        lease = job.job.lease
        (held if (lease.seq, lease.fence) in transaction.held else lost).append(job)
    return Batch(transaction.connection, held, lost)
