"""Jobs: as enqueued, as leased to a worker, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.conditions import Conditions, Unique
from holdfast.model.instants import to_datetime


class JobState(StrEnum):
    """The state of a job.

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

    The last three are final; only an operator's `retry` moves a failed or cancelled job out of them.
    `blocked` jobs wait for other jobs. Of each order key, every job but the head is blocked. When the head ends, the
    next one becomes the head: ready or, if it is not yet due, scheduled. A job with parents is blocked until all of
    them have ended; then it joins its order key, if it has one. A job with a limit key is blocked until the key has a
    slot for it.
    """

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


JobStateName = Literal["scheduled", "blocked", "ready", "running", "completed", "failed", "cancelled"]
FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to enqueue, validated and encoded.

    `delay` counts from the store's current time; `run_at` is an instant. Without either, the job is due at once.
    Jobs of one queue with the same `order_key` run one at a time, in the order in which the store inserted them.
    Of the jobs of one task and queue with the same `limit_key`, only as many run as the task allows for each key; a job
    has an `order_key` or a `limit_key`, not both. `conditions` is None for a job that has none.
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
    limit_key: str | None = None
    conditions: Conditions | None = None

    def __repr__(self) -> str:
        """Show the job without its arguments."""
        return f"<NewJob {self.id} ({self.task})>"


def unique_of(job: NewJob) -> Unique | None:
    """Return the unique key that a job is enqueued with."""
    return None if job.conditions is None else job.conditions.unique


def parents_of(job: NewJob) -> tuple[str, ...]:
    """Return the ids of the jobs for whose end this one waits, each once."""
    return () if job.conditions is None or not job.conditions.after else tuple(dict.fromkeys(job.conditions.after))


def check_ids(jobs: Sequence[NewJob]) -> None:
    """Raise `ConfigError` if two jobs of a call with unique keys or parents have one id: which of them is meant?"""
    ids: set[str] = set()
    for job in jobs:
        if job.id in ids:
            raise ConfigError(f"two jobs of one call have the id {job.id}: give each job an id, or leave it out")
        ids.add(job.id)


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as its handler sees it.

    `attempt` counts claims; `excused` counts those among them that do not count against `max_attempts`.
    `lost` counts how often a worker died (or stopped sending heartbeats) while it held the job's lease.
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
    _enqueued_us: int
    turn: int
    attempt: int
    excused: int
    interrupted: int
    lost: int

    def __repr__(self) -> str:
        """Show the job without its arguments: they may contain secrets, and a repr ends up in logs."""
        return f"<{type(self).__name__} {self.id} ({self.task}), attempt {self.attempt}>"

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued, by the store's clock."""
        return to_datetime(self._enqueued_us)

    @property
    def used_attempts(self) -> int:
        """How many attempts count against `max_attempts`, including the current one."""
        return self.attempt - self.excused

    @property
    def is_last_attempt(self) -> bool:
        """Whether no attempt is left after the current one."""
        return self.used_attempts >= self.max_attempts


class LeasedJob(Job, frozen=True, gc=False):
    """A job that a claim has leased, with the fence of that claim."""

    fence: int
    order_key: str | None = None

    @property
    def lease(self) -> Lease:
        """The lease that every write of this attempt carries."""
        return Lease(self.id, self.seq, self.fence)


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Exclusive ownership of a job for a limited time: the job, and the fence of the claim that leased it.

    Only the fence identifies a lease, not the attempt, the worker or the state: see `docs/explanation/leases.md`.
    """

    job_id: str
    seq: int
    fence: int
