"""The facts from which `model.explanation` concludes why a job is not running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.model.job import JobState
from holdfast.model.lease_rules import is_silent
from holdfast.model.limits import Limit, LimitUse


class WorkerFact(msgspec.Struct, frozen=True):
    """A worker by its last heartbeat; `running` is the number of its leases.

    `queues` None: it serves every queue. `tasks` None: it did not report them, and is taken to know every task.
    """

    worker_id: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    concurrency: int
    running: int
    lease: timedelta
    silent: timedelta

    @property
    def is_live(self) -> bool:
        """Whether its last heartbeat is not older than its lease: it sends them at least twice as often."""
        return not is_silent(self.silent, self.lease)

    def serves(self, queue: str) -> bool:
        """Return whether it claims from a queue."""
        return self.queues is None or queue in self.queues

    def knows(self, task: str) -> bool:
        """Return whether it claims jobs of a task."""
        return self.tasks is None or task in self.tasks


class LeaseFact(msgspec.Struct, frozen=True):
    """The lease of a running job; `expires_in` is negative once it has expired."""

    worker_id: str
    started_at: datetime
    expires_in: timedelta


class LaneFact(msgspec.Struct, frozen=True):
    """Ready jobs of one task in one queue whose turn is before that of the job; at most `MOST_AHEAD` are counted."""

    queue: str
    task: str
    is_paused: bool
    number: int


class HolderFact(msgspec.Struct, frozen=True):
    """A running job that counts towards a limit, and its worker."""

    job_id: str
    seq: int
    queue: str
    task: str
    worker_id: str


class KeyFact(msgspec.Struct, frozen=True):
    """The limit key of a job that waits for a slot; `admitted` jobs are ready or running, `holders` are some that run.

    `until_at`: when the rate allows the next start; None if the end of a job does.
    """

    limit_key: str
    limit: Limit | None
    admitted: int
    until_at: datetime | None
    holders: tuple[HolderFact, ...]


class ParentFact(msgspec.Struct, frozen=True):
    """A job for whose end the job waits, and that has not ended."""

    job_id: str
    seq: int
    task: str
    is_running: bool


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a job can run, read in one snapshot. `now` is the store's clock.

    `ahead` and `limits`, those of its queue and task, are read only for a job that may be claimed; `holders` only if a
    limit has no free slot. `head` is the head of the order key for which a job waits, `key` the limit key in which it
    waits.
    """

    job_id: str
    seq: int
    queue: str
    task: str
    state: JobState
    attempt: int
    due_at: datetime
    now: datetime
    order_key: str | None = None
    finished_at: datetime | None = None
    end_reason: str | None = None
    is_queue_paused: bool = False
    is_task_paused: bool = False
    lease: LeaseFact | None = None
    workers: Sequence[WorkerFact] = ()
    ahead: Sequence[LaneFact] = ()
    limits: Sequence[LimitUse] = ()
    holders: Sequence[HolderFact] = ()
    parents: Sequence[ParentFact] = ()
    head: JobFacts | None = None
    key: KeyFact | None = None

    @property
    def live(self) -> list[WorkerFact]:
        """The workers that are alive."""
        return [worker for worker in self.workers if worker.is_live]

    @property
    def able(self) -> list[WorkerFact]:
        """The live workers that can run this job."""
        return [worker for worker in self.live if worker.serves(self.queue) and worker.knows(self.task)]
