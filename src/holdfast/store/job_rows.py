"""The rows of jobs, as a store keeps them and as the rules read them.

```text
   rule:   locked = yield from rows.lock(selection)      the rows, and the store's clock
           decide, for each row: Change(old, new)        pure: `model.budget`, `model.turn`
           refused = yield from rows.write(changes)      each change by itself, if its row is unchanged since `lock`
```

On SQL `lock` locks the rows until the end of the transaction, so `write` refuses nothing. On Redis `lock` only reads,
and `write` is one script: it compares each row with what was read and applies the changes whose rows are unchanged. A
rule reads the refused rows again and decides again. Therefore a decision depends only on the row, and a row contains
everything that a decision needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.model.steady_clock import Steady
from holdfast.model.turn import run_at_of
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import UniqueRows
from holdfast.store.values import Finish

Key = tuple[int, int]
Record = TypeVar("Record", bound=tuple[Any, ...])
ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
_KEYED = frozenset({JobState.READY, JobState.RUNNING, JobState.BLOCKED})  # states of a job that is in its limit key


class ByLeases(NamedTuple):
    """The running jobs that are held under these leases. Waits for transactions that have locked one of them."""

    leases: Sequence[Lease]


class ById(NamedTuple):
    """One job, in any state. Waits for a transaction that has locked it."""

    job_id: str


class ByIds(NamedTuple):
    """Jobs in any state, by seq; ids that no job has are left out. Waits for transactions that have locked one."""

    job_ids: Sequence[str]


class Waiting(NamedTuple):
    """Those of these jobs that are ready, scheduled or blocked, by seq. Waits for transactions that have locked one."""

    job_ids: Sequence[str]


class OfWorker(NamedTuple):
    """Running jobs of a worker, whether their leases have expired or not. Skips rows that a transaction has locked."""

    worker_id: str
    limit: int


class Expired(NamedTuple):
    """Running jobs whose lease has expired by the store's clock. Skips rows that a transaction has locked.

    `access`: only leases for which this duration of unbroken access to the store suffices (`model.lease_rules`); None
    selects all.
    """

    access: timedelta | None
    limit: int


class WaitingChildren(NamedTuple):
    """Those of these jobs that are blocked by parents or cancelled, by seq. Waits for transactions that locked one."""

    seqs: Sequence[int]


Selection = ByLeases | ById | ByIds | Waiting | WaitingChildren | OfWorker | Expired


class JobRow(NamedTuple):
    """A job in one of its states, without payload and result. Instants and spans are microseconds.

    `fence`, `worker_id`, `started_at` and `lease_span` are those of the lease while the job runs. `followed`: other
    jobs may wait for its end, as for that of the head of an order key or of a parent: the step that ends it must settle
    them; never true of an ended job. `held` is the number of leases of its worker, including this one, if the selection
    needs it; it is never written. `token` is private to the store; on SQL it is the clock at which the row was locked.
    """

    id: str
    seq: int
    lane_id: int
    queue: str
    task: str
    order_key: str | None
    limit_key: str | None
    state: JobState
    priority: int
    max_attempts: int
    turn: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    followed: bool
    retrying: bool
    isolated: bool
    cancel_asked: bool
    cancel_reason: str | None
    fence: int
    worker_id: str | None
    started_at: int | None
    lease_span: int | None
    finished_at: int | None
    reason: str | None
    held: int = 0
    token: object = None

    @property
    def run_at(self) -> int:
        """When it is due."""
        return run_at_of(self.turn, self.priority)

    @property
    def counters(self) -> Counters:
        """The counters of its attempts."""
        return Counters(self.attempt, self.excused, self.interrupted, self.lost)


class Locked(NamedTuple):
    """The answer to `lock`. `now` is the store's clock, the only one that a rule uses."""

    now: int
    rows: list[JobRow]


class AttemptRecord(NamedTuple):
    """An attempt that ended without completing the job.

    `by_holder`: the holder of the lease ended it. `thin`: the range (after, up to] of attempts whose records to delete.
    """

    attempt: int
    fence: int
    by_holder: bool
    worker_id: str
    started_at: int
    ended_at: int
    outcome: str
    failure: Failure | None
    thin: tuple[int, int] | None = None


class Change(NamedTuple):
    """The change of one job, from the row that was read to the row to write: applied or refused as a whole.

    `unextended`: also refused if the lease was extended since it was read. `counts` are the per-minute counters to
    increment. `clears_isolation`: if applied, the other leases of the old row's worker are no longer isolated.
    `waits`: the new row is blocked by its parents, not in its order key. `broken_by` is the seq of the parent because
    of which the job is cancelled; `is_mended`: this is forgotten. `only_follows`: the job stays as it is, but is
    followed from now on.
    """

    old: JobRow
    new: JobRow
    attempt: AttemptRecord | None = None
    counts: tuple[str, ...] = ()
    unextended: bool = False
    clears_isolation: bool = False
    waits: bool = False
    broken_by: int | None = None
    is_mended: bool = False
    only_follows: bool = False

    @property
    def settles(self) -> bool:
        """Whether its key is to be settled: the head of an order key ends or a job joins it, or a slot may be free."""
        if self.only_follows:
            return False
        if self.old.limit_key is not None:
            return self.joins_limit_key or (self.old.state in _KEYED and self.new.state is not self.old.state)
        if self.old.order_key is None:
            return False
        head_ends = self.old.state not in ENDED and self.old.state is not JobState.BLOCKED and self.new.state in ENDED
        return head_ends or (self.new.state is JobState.BLOCKED and not self.waits)

    @property
    def joins_limit_key(self) -> bool:
        """Whether the job becomes ready only when its limit key has a slot for it."""
        return self.new.limit_key is not None and self.new.state is JobState.READY and not self.only_follows

    @property
    def concerns_children(self) -> bool:
        """Whether its children, or it, are to be decided: a followed job ends, or a job runs again after its end."""
        if self.old.state in ENDED:
            return self.new.state not in ENDED and (self.new.followed or self.waits)
        return self.new.state in ENDED and self.old.followed


class NewLink(NamedTuple):
    """A child that a call has inserted, and one of its parents: the `place`-th."""

    child_id: str
    place: int
    parent_id: str
    run_anyway: bool


class CompletedRows(NamedTuple):
    """The answer to `complete`: the refused leases, as (seq, fence), and the seqs of ended jobs that are followed."""

    refused: set[Key]
    heads: list[int]


class JobRows(UniqueRows, Protocol):
    """What a store implements for the rules of jobs. Each method is a generator of requests to the store.

    `steady` compares the store's clock with that of this process; None if a test sets the clock.
    """

    steady: Steady | None

    def lock(self, selection: Selection) -> Steps[Locked]:
        """Return the selected rows, to be changed by `write` in the same verb."""
        ...

    def write(self, now: int, changes: Sequence[Change], heads: Sequence[int] = ()) -> Steps[list[Change]]:
        """Apply each change whose row is unchanged since it was read, all in one step; return the refused ones.

        1. A job is in `changes` at most once.
        2. A job that becomes BLOCKED goes to the end of its order key.
        3. If the head of an order key has ended, or the key has none yet, its first waiting job becomes the head in the
           same step: ready, or scheduled if it is not yet due. `heads` are followed jobs that `complete` has ended.
           A job with a limit key that becomes READY waits in its key, BLOCKED, until it has a slot. Whenever a job has
           left a slot, or joined a key, the first waiting jobs by turn and seq become ready in the same step, as many
           as `model.key_limits` allows; ready jobs over a lowered limit wait again.
        4. Waiting workers are notified of jobs that became ready.
        5. A job with children that ends, or is to run again after its end, is recorded for `changed_parents`, without a
           lock on the children.
        """
        ...

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:
        """Complete every job that is held under its lease; every outcome is `Completed`.

        Refuses a lease that is not held; an earlier call may have completed its job: see `ended`. The caller passes the
        heads to `write`.
        """
        ...

    def ended(self, leases: Sequence[Lease]) -> Steps[dict[Key, str]]:
        """Return, for each lease that its holder has ended under its fence, the written outcome."""
        ...

    def link(self, links: Sequence[NewLink], inserted: Sequence[str], decide: Sequence[str]) -> Steps[None]:
        """Link children to their parents, in the transaction that has inserted the children.

        Those of the parents that the same transaction has inserted, `inserted`, become followed. The children in
        `decide` are recorded for `changed_parents`.
        """
        ...

    def promote(self, limit: int) -> Steps[int]:
        """Move at most `limit` due jobs from scheduled to ready, the longest due first; return how many.

        Those with a limit key become ready when it has a slot. Includes `fill_keys`.
        """
        ...

    def fill_keys(self, limit: int) -> Steps[int]:
        """Look at no more than `limit` limit keys whose limit was changed, or whose rate allows a start by now.

        Returns how many. Never waits for a key that another session has locked.
        """
        ...

    def locked_leases(self, leases: Sequence[Lease]) -> Steps[set[int]]:
        """Return the seqs of those of these held leases that another client has locked; the others are locked here."""
        ...

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:
        """Return the changes that can be written without waiting for a lock: a rescue never waits for other clients."""
        ...

    def page(self, record: type[Record], listing: str, **parameters: object) -> Steps[list[Record]]:
        """Return the rows of a list, each a record of `store.job_lists`."""
        ...

    def act(self, action: str, **parameters: object) -> Steps[bool]:
        """Run a step without a rule, such as `extend_one`, `set_progress`, `pause`, `resume_task`, `forget_worker`.

        Returns whether it changed something. Steps under a lease change nothing if its fence is stale.
        """
        ...

    def delete(self, ended: Sequence[JobRow]) -> Steps[list[JobRow]]:
        """Delete ended jobs whose rows are unchanged since they were read; return the refused ones.

        Also refuses parents of jobs that have not ended.

        Everything that belongs to a job is deleted with it. The age of the jobs that remain is still found by `prune`.
        """
        ...

    def prune(self, state: JobState, keep: timedelta, limit: int) -> Steps[int]:
        """Delete at most `limit` jobs that ended in `state` longer ago than `keep`, the oldest first; return how many.

        Everything that belongs to a job is deleted with it. A job that has left that state meanwhile is not deleted,
        nor a parent of a job that has not ended.
        """
        ...

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:
        """Delete minute counts older than `counts`, and workers whose last heartbeat is older than `workers`."""
        ...
