"""The job: what is asked, what is held, what a person sees of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.model.instants import to_datetime


class JobState(StrEnum):
    """Where a job stands.

    ```text
              enqueue(delay)                 enqueue
                   │                            │
                   ▼          due               ▼      claim
               scheduled ───────────────────▶ ready ◀─────────┐
                   ▲                            │             │ release, rescue
                   │ retry, snooze              ▼             │
                   └──────────────────────── running ─────────┘
                                                │
                          ┌─────────────────────┼──────────────────┐
                          ▼                     ▼                  ▼
                      completed              failed            cancelled
    ```

    The last three are final; only a person's `retry` takes a failed or cancelled job out of them.
    `blocked` waits for other jobs: of each order_key only the head of the line lies outside of it; the end of the head
    brings up the next, as ready or, if it is not yet due, as scheduled.
    """

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to enqueue; checked and encoded.

    `delay` is counted from the store's now; `run_at` is an instant. Without either the job is due at once.
    Jobs of one queue with the same `order_key` run one at a time, in the order in which the store took them in.
    """

    id: str
    queue: str
    task: str
    payload: str
    headers: dict[str, str] | None = None
    priority: int = 0
    max_attempts: int = 5
    timeout: float | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    order_key: str | None = None

    def __repr__(self) -> str:
        """Show the job, never its arguments."""
        return f"<NewJob {self.id} ({self.task})>"


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as its handler sees it.

    `attempt` counts claims; those that do not count against `max_attempts` are in `excused`.
    `lost` counts how often a worker died (or fell silent) while it held the job.
    """

    id: str
    seq: int
    queue: str
    task: str
    payload: str
    headers: dict[str, str] | None
    priority: int
    max_attempts: int
    timeout: float | None
    enqueued_us: int
    turn_us: int
    attempt: int
    excused: int
    interrupted: int
    lost: int

    def __repr__(self) -> str:
        """Show the job, never its arguments: they may hold secrets, and a repr ends up in logs."""
        return f"<{type(self).__name__} {self.id} ({self.task}), attempt {self.attempt}>"

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued, by the store's clock."""
        return to_datetime(self.enqueued_us)

    @property
    def used_attempts(self) -> int:
        """How many attempts count against `max_attempts`, the present one included."""
        return self.attempt - self.excused

    @property
    def is_last_attempt(self) -> bool:
        """Whether no attempt is left after the present one."""
        return self.used_attempts >= self.max_attempts


class LeasedJob(Job, frozen=True, gc=False):
    """A job that a claim has just leased, with the fence of that claim."""

    fence: int
    order_key: str | None = None

    @property
    def lease(self) -> Lease:
        """The handle under which every write for this attempt is made."""
        return Lease(job_id=self.id, seq=self.seq, fence=self.fence)


class Lease(msgspec.Struct, frozen=True, gc=False):
    """An exclusive hold on a job: the job and the fence of the claim that took it.

    Not the attempt, not the worker and not the state, but the fence makes a lease: see `docs/explanation/leases.md`.
    """

    job_id: str
    seq: int
    fence: int
