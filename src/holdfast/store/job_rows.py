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
from typing import NamedTuple, Protocol

from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Failure
from holdfast.store.steps import Steps

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
    payload_bytes: int
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
    """An attempt that ended without completing the job. `thin`: records to drop, those in (after, up to]."""

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


class JobRows(Protocol):
    """What a store implements for the rules of jobs. Each method is a generator of the store's own requests."""

    def lock(self, selection: Selection) -> Steps[Locked]:
        """Return the selected rows, to be changed by `write` in the same verb."""
        ...

    def write(self, now: int, changes: Sequence[Change]) -> Steps[list[Change]]:
        """Apply each change whose row is still as it was read, all of them at once; return the refused ones.

        1. A job is in `changes` at most once.
        2. A job that becomes BLOCKED goes to the end of its order key.
        3. An order key whose head has ended, or that has none yet, takes its first waiting job as head in the same
           step: ready, or scheduled if that is not yet due.
        4. Waiting workers are notified of what became ready.
        """
        ...

    def ended(self, leases: Sequence[Lease]) -> Steps[list[str | None]]:
        """Return for each lease the outcome that its holder has already written under that fence, or None."""
        ...
