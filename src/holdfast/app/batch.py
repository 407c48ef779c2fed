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
    contextmanager,
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.app.claimed_job import ClaimedJob, failed_outcome, retry_outcome
from holdfast.errors import ConfigError, LeaseLost, OutcomeUnknown
from holdfast.jobs.effect import transaction_limit
from holdfast.model.isolation import Isolation, check_isolation
from holdfast.model.outcome import Completed, Outcome
from holdfast.runtime.effect import refuse_nested, settle_children, still_unknown
from holdfast.runtime.failpoint import failpoint
from holdfast.runtime.payload import encode_result_or_reason
from holdfast.store.backend import Backend, Transaction
from holdfast.store.values import Finish, Standing, Verdict

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


AsyncBatch = AbstractAsyncContextManager[Batch]
BlockingBatch = AbstractContextManager[Batch]


@asynccontextmanager
async def open_batch(app: App, jobs: Sequence[ClaimedJob], isolation: Isolation) -> AsyncGenerator[Batch]:
    """Open a transaction over claimed jobs; see `App.batch`."""
    _check(app, jobs)
    check_isolation(isolation)
    backend = await app.opened()
    refuse_nested(backend)
    finishes: list[Finish] = []
    try:
        leases = [job.job.lease for job in jobs]
        async with backend.transactions.begin_many(leases, limit=_limit(jobs), isolation=isolation) as transaction:
            batch = _sorted(transaction, jobs)
            failpoint("before_effect")
            try:
                yield batch
            finally:
                batch.close()
            failpoint("after_effect")
            finishes = batch.finishes
            if finishes:
                _check_written(finishes, await transaction.finish(finishes))
            failpoint("before_commit")
        failpoint("after_commit")
        if transaction.concerns_children:
            await settle_children(backend)
    except OutcomeUnknown as unknown:
        with still_unknown(unknown):
            if not await _was_committed(backend, finishes):
                raise


@contextmanager
def open_batch_blocking(app: App, jobs: Sequence[ClaimedJob], isolation: Isolation) -> Generator[Batch]:
    """The same for blocking code, with a blocking connection; blocking calls of the app inside it join it."""
    _check(app, jobs)
    check_isolation(isolation)
    call = app.portal.call
    backend = call(app.opened())
    refuse_nested(backend)
    finishes: list[Finish] = []
    try:
        leases = [job.job.lease for job in jobs]
        opening = backend.transactions.begin_many_blocking(leases, limit=_limit(jobs), isolation=isolation)
        with opening as transaction:
            batch = _sorted(transaction, jobs)
            failpoint("before_effect")
            try:
                yield batch
            finally:
                batch.close()
            failpoint("after_effect")
            finishes = batch.finishes
            if finishes:
                _check_written(finishes, transaction.finish(finishes))
            failpoint("before_commit")
        failpoint("after_commit")
        if transaction.concerns_children:
            call(settle_children(backend))
    except OutcomeUnknown as unknown:
        with still_unknown(unknown):
            if not call(_was_committed(backend, finishes)):
                raise


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


def _limit(jobs: Sequence[ClaimedJob]) -> timedelta:
    return min(transaction_limit(job.span) for job in jobs)


def _sorted(transaction: Transaction, jobs: Sequence[ClaimedJob]) -> Batch:
    """Return the batch: the jobs whose leases the transaction holds, and the others."""
    held, lost = list[ClaimedJob](), list[ClaimedJob]()
    for job in jobs:
        lease = job.job.lease
        (held if (lease.seq, lease.fence) in transaction.held else lost).append(job)
    return Batch(transaction.connection, held, lost)


def _check_written(finishes: list[Finish], verdicts: list[Verdict]) -> None:
    lost = [finish.lease.job_id for finish, verdict in zip(finishes, verdicts, strict=True) if verdict is Verdict.LOST]
    if lost:
        message = f"{len(lost)} jobs of the batch, the first {lost[0]}, are no longer leased. Nothing was written"
        raise LeaseLost(message)


async def _was_committed(backend: Backend, finishes: list[Finish]) -> bool:
    """Return whether the transaction was committed: one of its completions proves it for all."""
    for finish in finishes:
        if isinstance(finish.outcome, Completed):
            return await backend.jobs.verify(finish.lease) is Standing.COMPLETED
    return False
