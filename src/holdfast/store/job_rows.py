"""The rows of jobs, as a store keeps them and as the rules see them.

```text
   rule:   locked = yield from rows.lock(selection)      the rows, and the store's clock
           decide, for each row: Change(old, new)        pure: `model.budget`, `model.turn`
           refused = yield from rows.write(changes)      each change on its own, if its row is still as it was read
```

On SQL `lock` locks the rows until the end of the transaction, so `write` refuses nothing. On Redis `lock` only reads,
and `write` is one script: it compares each row with what was read and applies the changes that still fit. A rule reads
the refused rows again and decides again. That is why a decision depends on the row alone, and why a row has everything
that a decision needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.store.steps import Steps
from holdfast.store.values import Finish

Key = tuple[int, int]
Record = TypeVar("Record", bound=tuple[Any, ...])
ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class ByLeases(NamedTuple):
    """The running jobs that are held under these leases. Waits for a transaction that has one of them locked."""

    leases: Sequence[Lease]


class ById(NamedTuple):
    """One job, in whatever state it is. Waits for a transaction that has it locked."""

    job_id: str


class OfWorker(NamedTuple):
    """Running jobs of a worker, expired or not. Skips rows that a transaction has locked."""

    worker_id: str
    limit: int


class Expired(NamedTuple):
    """Running jobs whose lease has expired by the store's clock. Skips rows that a transaction has locked.

    `access`: only leases for which this much unbroken access to the store suffices (`model.lease_rules`). None: all.
    """

    access: timedelta | None
    limit: int


Selection = ByLeases | ById | OfWorker | Expired


class JobRow(NamedTuple):
    """A job in one of its states, without payload and result. Instants and spans are microseconds.

    `fence`, `worker_id`, `started_at` and `lease_span` are those of the lease while it runs. `keyed`: it has an
    `order_key` and is the head of it, so its end must bring up the next. `held` is the number of leases of its worker,
    this one included, where the selection asks for it; it is never written. `token` is the store's own guard.
    """

    id: str
    seq: int
    lane_id: int
    queue: str
    task: str
    order_key: str | None
    state: JobState
    priority: int
    max_attempts: int
    turn: int
    run_at: int
    attempt: int
    excused: int
    interrupted: int
    lost: int
    keyed: bool
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
    def counters(self) -> Counters:
        """The counters of its attempts."""
        return Counters(self.attempt, self.excused, self.interrupted, self.lost)


class Locked(NamedTuple):
    """The answer to `lock`. `now` is the store's clock; a rule uses no other."""

    now: int
    rows: list[JobRow]


class AttemptRecord(NamedTuple):
    """An attempt that ended without completing the job.

    `by_holder`: its holder ended it. `thin`: older records of the job to drop, (after, up to], as attempt numbers.
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
    """One job's step from the row as it was read to the row as it shall be: the unit of atomicity and of refusal.

    `unextended`: also refused if the lease was extended since it was read. `counts` are the per-minute counters to
    raise. `clears_isolation`: if applied, the other leases of the old row's worker are no longer isolated.
    """

    old: JobRow
    new: JobRow
    attempt: AttemptRecord | None = None
    counts: tuple[str, ...] = ()
    unextended: bool = False
    clears_isolation: bool = False

    @property
    def settles(self) -> bool:
        """Whether the order key may need a new head afterwards: its head has ended, or an ended job joins it again."""
        if self.old.order_key is None:
            return False
        head_ends = self.old.state not in ENDED and self.old.state is not JobState.BLOCKED and self.new.state in ENDED
        return head_ends or (self.old.state in ENDED and self.new.state is JobState.BLOCKED)


class CompletedRows(NamedTuple):
    """The answer to `complete`: leases, as (seq, fence), that were refused, and the seqs of heads of order keys."""

    refused: set[Key]
    heads: list[int]


class JobRows(Protocol):
    """What a store implements for the rules of jobs. Each method is a generator of the store's own requests."""

    def lock(self, selection: Selection) -> Steps[Locked]:
        """Return the selected rows, to be changed by `write` in the same verb."""
        ...

    def write(self, now: int, changes: Sequence[Change], heads: Sequence[int] = ()) -> Steps[list[Change]]:
        """Apply each change whose row is still as it was read, all of them at once; return the refused ones.

        1. A job is in `changes` at most once.
        2. A job that becomes BLOCKED goes to the end of its order key.
        3. An order key whose head has ended, or that has none yet, takes its first waiting job as head in the same
           step: ready, or scheduled if that is not yet due. `heads` are heads that `complete` has ended.
        4. Waiting workers are notified of what became ready.
        """
        ...

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:
        """Complete every job that is held under its lease; every outcome is `Completed`.

        Refuses a lease that is not held, though it may have completed its job before: see `ended`. The caller passes
        the heads to `write`.
        """
        ...

    def ended(self, leases: Sequence[Lease]) -> Steps[dict[Key, str]]:
        """Return, for each lease that its holder has ended under that fence, the outcome that it has written."""
        ...

    def promote(self, limit: int) -> Steps[int]:
        """Move at most `limit` due jobs from scheduled to ready, the longest due first; return how many."""
        ...

    def reachable(self, changes: Sequence[Change]) -> Steps[Sequence[Change]]:
        """Return the changes that can be written without waiting for a lock: a rescue waits for no other client."""
        ...

    def access(self, unbroken: timedelta | None) -> Steps[timedelta | None]:
        """Return how much unbroken access to the store a rescuer has had: at most `unbroken`, its own measure."""
        ...

    def page(self, record: type[Record], listing: str, **parameters: object) -> Steps[list[Record]]:
        """Return the rows of a list, each a record of `store.job_lists`."""
        ...

    def act(self, action: str, **parameters: object) -> Steps[bool]:
        """Do a step that needs no rule: `extend_one`, `set_progress`, `pause`, `resume`, `heartbeat`, `forget_worker`.

        Returns whether it changed something. Those under a lease change nothing if its fence is stale.
        """
        ...

    def prune(self, state: JobState, keep: timedelta, limit: int) -> Steps[int]:
        """Delete at most `limit` jobs that ended in `state` longer ago than `keep`, the oldest first; return how many.

        What belongs to a job goes with it. A job that has left that state meanwhile is not deleted.
        """
        ...

    def prune_records(self, *, counts: timedelta | None, workers: timedelta) -> Steps[None]:
        """Delete minute counts older than `counts`, and workers whose last heartbeat is older than `workers`."""
        ...
