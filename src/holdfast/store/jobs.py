"""The port's verbs for jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.job import JobState, Lease, NewJob
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import (
    Cancellation,
    Claim,
    ClaimRequest,
    Enqueued,
    Extension,
    Finish,
    Outstanding,
    Promotion,
    Rescued,
    Retention,
    Standing,
    Verdict,
    WorkerHeartbeat,
)


class JobStore(Protocol):
    """The life cycle of a job, from enqueue to prune. Every method is one atomic step of the store.

    Any method may raise `StoreUnavailable` (nothing was done) or `OutcomeUnknown` (it may have been done). Every method
    is safe to repeat after either.

    Methods that write, and `verify`, see the current state of the store. Methods that only read (`outstanding`
    and `Extender.cancel_asked`) may return an older state, but never one from before an answer that the same
    object has returned: after a claim, whether it returned jobs or not, a read shows at least what that claim saw. A
    worker that stops when no job is left relies on this.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Enqueue jobs, all or none; return True for each that is new.

        1. A job whose id is already known, in any state, is not changed and is answered with False.
        2. A job with neither delay nor run_at, or with one in the past, is ready; otherwise it is scheduled.
        3. Jobs get a growing `seq` in the order of the call.
        4. Of the jobs of one queue with one `order_key` that have not ended, only the head is ready, scheduled or
           running. The others are blocked, due or not, in the order of their seq.
        5. If a transaction in flight also changes one of the order keys, the call waits for its end: a key never has
           two heads, and waiting jobs are never left without a head.
        6. Raises `ConfigError` if jobs of the call have unique keys or parents, and two of them have one id.
        """
        ...

    async def claim(self, request: ClaimRequest) -> Claim:
        """Lease ready jobs to a worker.

        1. Leases at most `limit` jobs of the named queues and tasks, none of a paused queue or task, by
           turn, then seq.
        2. Increments `attempt` of each job and gives all of them one new fence, larger than any before.
        3. A job is leased to one worker at a time, however many workers claim concurrently.
        4. Leases no more jobs of a queue or task than its limits allow, by the leases that exist and by the store's
           clock, however many workers claim concurrently. Jobs over a limit do not hold back others.
        5. Stops early when the payloads exceed `max_bytes`, or after a thousand jobs where more would hold up other
           clients, but leases at least one job if there is one.
        """
        ...

    async def finish(self, finishes: Sequence[Finish], *, briefly: bool = False) -> list[Verdict]:
        """Write the outcomes of attempts; return one verdict for each, in order.

        1. A stale fence changes nothing and is answered LOST; the other finishes are written.
        2. A repeat of a finish that was written, under the same fence, is answered DONE and changes nothing.
        3. Every attempt that did not complete its job is recorded; the first few and the last few records are kept.
        4. Completed goes to the ledger, Retried and Snoozed to scheduled, Failed and Cancelled to separate tables.
        5. Lost is decided by `model.budget.after_loss` with alone=True.
        6. A job that would run again, but whose cancellation was requested, is cancelled; also in release and rescue.
        7. When the head of an order key is completed, failed or cancelled, by whatever verb, the next job becomes the
           head in the same transaction: ready, or scheduled if not yet due. A head that will run again stays the head.
        8. `briefly`, outside of a handler's transaction: if a transaction of another client keeps a job or its key
           locked, waits no longer than a second or so; that finish is answered DELAYED, and the others are written.
        """
        ...

    async def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        """Release leases; the jobs are ready again at their old turn.

        1. `started=False`: the handler has not started; the attempt is excused, however often that happens.
        2. `started=True`: the handler was interrupted; `model.budget.after_interruption` decides, and the attempt is
           recorded.
        3. A stale fence changes nothing and is answered LOST.
        """
        ...

    async def unacknowledged_leases(self, worker_id: str, after: int) -> list[Lease]:
        """List a worker's leases under fences larger than `after`, the largest that it has received; reads only.

        They come from claims whose replies were lost: these jobs have not been started. A claim that is not yet
        committed is not seen.
        """
        ...

    async def promote(self, limit: int) -> Promotion:
        """Move at most `limit` due jobs from scheduled to ready, the longest due first."""
        ...

    async def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:
        """Take at most `limit` expired leases from their workers.

        1. `unbroken` is how long the caller has had unbroken access to the store. A lease is taken only if that is at
           least half of the lease's duration (`model.lease_rules`), so that after an outage live workers extend first.
           None takes every expired lease: an operator asked.
           A long wait for the store inside the call also breaks the access: then nothing is taken.
        2. Expiry is judged by the store's clock in the same step that takes the lease.
        3. `model.budget.after_loss` decides what becomes of each job; a job whose cancellation was requested is
           cancelled.
        4. `model.budget.was_alone` decides whether a job was alone, from all leases that its worker has in this step,
           expired or not. The leases that the worker keeps are no longer isolated.
        """
        ...

    async def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:
        """Take at most `limit` leases, expired or not, of a worker that is known to be dead, and forget the worker.

        The jobs are treated as by `rescue`.
        """
        ...

    async def run(self, job_id: str) -> bool:
        """Operator action: make a scheduled job due now; False if it is not scheduled. Raises `JobNotFound`.

        Its attempts and its order key stay as they are; a limit per key applies as to other ready jobs.
        """
        ...

    async def reset(self, job_id: str) -> bool:
        """Operator action: revoke a running job's lease. The job is ready again, its attempt excused, the fence stale.

        A job whose cancellation was requested is cancelled instead. False if it is not running. Raises `JobNotFound`.
        """
        ...

    async def cancel(self, job_id: str, reason: str) -> Cancellation:
        """Cancel a waiting job, or request the cancellation of a running one; raises `JobNotFound`.

        A blocked job leaves its order key; the others keep their order.
        """
        ...

    async def cancel_all(self, job_ids: Sequence[str], reason: str) -> dict[str, Cancellation]:
        """Do what `cancel` does to each of these jobs, all in one step; an id that no job has is missing."""
        ...

    async def delete(
        self, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
    ) -> dict[str, JobState | None]:
        """Operator action: delete ended jobs with their records, all in one step.

        Returns None for each job that was deleted, and its state for each that was not: it is in none of `states`, it
        has not ended, or it ended less than `older_than` ago. An id that no job has is missing. The fence of a deleted
        job is stale, and its id is free, as after `prune`.
        """
        ...

    async def retry(self, job_id: str, *, ended_by: datetime | None = None) -> bool:
        """Make a failed or cancelled job ready with a fresh budget; False if it is in another state.

        With `ended_by`, an instant that the store's clock has shown, also False if the job has ended later: a job that
        was retried since then and failed again is not retried twice.

        `attempt` keeps counting; the attempts so far are excused. A job with an `order_key` goes to the end of its key:
        it is blocked while others are before it. Raises `JobNotFound`.
        """
        ...

    async def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:
        """Record the progress of an attempt."""
        ...

    async def extend(self, lease: Lease, duration: timedelta) -> Verdict:
        """Extend one lease to `duration` from now, if that is later than its end; an expired lease is held again."""
        ...

    async def verify(self, lease: Lease) -> Standing:
        """Return the state of a lease; waits for a transaction in flight that has locked it."""
        ...

    async def prune(self, retention: Retention, limit: int) -> int:
        """Delete at most `limit` finished jobs past their retention, with their records; return how many."""
        ...

    async def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:
        """Count what is left to do for a worker that knows these tasks and serves these queues."""
        ...


class Extender(Protocol):
    """The blocking verbs of the thread that extends leases and sends heartbeats, over a separate connection."""

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases to `duration` from now, which becomes their duration.

        1. A lease whose fence is stale is answered as lost and changes nothing.
        2. A lease that has expired but was not rescued is extended.
        3. A lease that a transaction has locked is not answered as lost. Either the call waits for the end of the
           transaction, or the lease is not changed and answered as skipped: the caller extends it again soon.
        """
        ...

    def cancel_asked(self, worker_id: str) -> list[Lease]:
        """Return the leases of a worker whose jobs are to be cancelled; a cheap read."""
        ...

    def heartbeat(self, worker: WorkerHeartbeat) -> None:
        """Send the heartbeat of a worker."""
        ...

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:
        """Send the heartbeat of a node and return its shares, as `AllocationStore.heartbeat` does."""
        ...

    def owned(self, node: NodeKey) -> OwnedShares:
        """Return a node's shares and write nothing, as `AllocationStore.owned` does."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
