"""The values that the verbs for jobs take and return."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.duration import to_span
from holdfast.model.job import JobState, Lease, LeasedJob
from holdfast.model.limits import Limit
from holdfast.model.outcome import Outcome


class Verdict(StrEnum):
    """The answer to a write under a lease."""

    DONE = "done"
    LOST = "lost"  # the fence is stale: nothing was written
    DELAYED = "delayed"  # a transaction of another client locks what the write needs: nothing was written, ask again


Enqueued = bool | str
"""The answer to an enqueue: True if the job is new, False if its id is known, or the id of the job that was kept."""


class Standing(StrEnum):
    """The state of a lease, read under a lock that waits for any transaction in flight."""

    HELD = "held"
    COMPLETED = "completed"  # under this fence
    LOST = "lost"


class ClaimRequest(msgspec.Struct, frozen=True):
    """Which jobs a worker can run.

    `queues` None means every queue. Only jobs of the tasks in `tasks` are claimed. `isolates`: the worker can run a job
    in a separate child process, which is required for a job that was lost before.
    """

    worker_id: str
    tasks: tuple[str, ...]
    limit: int
    lease: timedelta
    queues: tuple[str, ...] | None = None
    isolates: bool = True
    max_bytes: int = 4 * 1024 * 1024
    slots: int | None = None
    """At most so many jobs of queues or tasks with limits; None: as many as `limit`.

    A job that waits here for a slot would hold one of the limit's slots, and use its rate before it starts.
    """

    def serves(self, queue: str) -> bool:
        """Return whether jobs of a queue are asked for."""
        return self.queues is None or queue in self.queues


class Claim(msgspec.Struct, frozen=True):
    """The jobs that a claim has leased, all under the same fence.

    `is_cut`: there were more, but the payloads had reached `max_bytes`, or the store leases no more at once.
    `is_limited`: there were more, but they are over a limit; `wait` is how long until a rate allows the next, None if
    it depends on the end of running jobs. `limited` are the seqs of the jobs whose queue or task has a limit.
    """

    jobs: list[LeasedJob]
    is_cut: bool = False
    is_limited: bool = False
    wait: timedelta | None = None
    limited: frozenset[int] = frozenset()


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, to be written under its lease."""

    lease: Lease
    outcome: Outcome


class Extension(msgspec.Struct, frozen=True):
    """The answer to an extension: the leases that are lost, and those whose job is to be cancelled.

    `skipped` leases are still held but were not extended, because a transaction has locked them.
    """

    lost: list[Lease]
    cancel_asked: list[Lease]
    skipped: list[Lease] = []


class Promotion(msgspec.Struct, frozen=True):
    """How many due jobs were moved to ready, and how long until the next one is due (None: none is scheduled)."""

    moved: int
    next_due: timedelta | None


class Rescued(msgspec.Struct, frozen=True):
    """A job whose lease was taken from a dead or silent worker, and its new state."""

    job_id: str
    task: str
    queue: str
    worker_id: str
    attempt: int
    state: JobState


class Cancellation(StrEnum):
    """The answer to `cancel`."""

    CANCELLED = "cancelled"  # it had not started, and never will
    ASKED = "asked"  # it runs and may complete, but not run again; its worker is notified, a caller of `claim` is not
    TOO_LATE = "too_late"  # it had already ended


class Retention(msgspec.Struct, frozen=True):
    """How long finished jobs are kept; None keeps them forever.

    Raises `ConfigError` unless each is a timedelta: a bare number would be ambiguous, days or seconds?
    """

    completed: timedelta | None = timedelta(days=7)
    failed: timedelta | None = timedelta(days=90)
    cancelled: timedelta | None = timedelta(days=30)
    counts: timedelta | None = timedelta(days=30)

    def __post_init__(self) -> None:
        """Check every duration."""
        for name in self.__struct_fields__:
            kept = getattr(self, name)
            if kept is None:
                continue
            if not isinstance(kept, timedelta):
                remedy = f"pass a timedelta, as in {name}=timedelta(days=7), or None to keep them forever"
                raise ConfigError(f"the retention {name}={kept!r} has no unit: {remedy}")
            to_span(kept, f"the retention of {name}" if name == "counts" else f"the retention of {name} jobs")


class Outstanding(msgspec.Struct, frozen=True):
    """The jobs that are left, for a worker that stops when there are none.

    `ready` and `retrying` count jobs that this worker can claim; `running` counts the jobs of all workers; `unknown`
    counts ready or retrying jobs of tasks that it does not know; `delayed` counts jobs that their caller delayed.
    `blocked` counts jobs behind the head of an order key, if this worker can claim that head or if it runs. A job
    behind a head that is delayed, or of an unknown task, counts as that; a job in a paused queue, or of a
    paused task, counts as paused. Jobs that wait for parents are not counted, except as `blocked` once the parents have
    ended.
    """

    ready: int
    retrying: int
    blocked: int
    running: int
    delayed: int
    paused: int
    unknown: int

    @property
    def is_empty(self) -> bool:
        """Whether a worker in until-empty mode may stop."""
        return not (self.ready or self.retrying or self.blocked or self.running)


class WorkerHeartbeat(msgspec.Struct, frozen=True):
    """What a worker reports with each heartbeat: one row per process incarnation.

    `running` is the number of its leases. `tasks` are those that it knows: the store writes them with the first
    heartbeat only. None if it reports none.
    """

    worker_id: str
    host: str
    pid: int
    queues: tuple[str, ...] | None
    concurrency: int
    lease: timedelta
    running: int
    supervisor_id: str | None = None
    tasks: tuple[str, ...] | None = None

    def serves(self, queue: str) -> bool:
        """Return whether the worker claims from a queue."""
        return self.queues is None or queue in self.queues


class WorkerView(msgspec.Struct, frozen=True):
    """A worker as of its last heartbeat; `silent` is the time since then, by the store's clock.

    `running` is the number of leases that it holds now.
    """

    heartbeat: WorkerHeartbeat
    started_at: datetime  # when it sent its first heartbeat
    silent: timedelta
    running: int = 0


class WaitingTask(msgspec.Struct, frozen=True):
    """A task with ready jobs in a queue."""

    queue: str
    task: str
    paused: bool


class JobCounts(msgspec.Struct, frozen=True):
    """A queue or a task, and the number of its jobs in each state.

    `oldest_ready` is how long the job whose turn is next has been due.
    """

    name: str
    paused: bool
    ready: int
    scheduled: int
    blocked: int
    running: int
    failed: int
    oldest_ready: timedelta | None


class QueueView(JobCounts, frozen=True):
    """A queue; `at_least` are the states of which there may be more jobs than were counted."""

    at_least: tuple[str, ...] = ()
    limit: Limit | None = None


class TaskView(JobCounts, frozen=True):
    """A task, over all queues; the rest as for a queue."""

    limit: Limit | None = None
    key_limit: Limit | None = None
    """What it allows for each limit key of its jobs."""
    at_least: tuple[str, ...] = ()


class LeaseView(msgspec.Struct, frozen=True):
    """An active lease; `expires_in` is negative once it has expired and was not yet rescued."""

    job_id: str
    seq: int
    fence: int
    queue: str
    task: str
    worker_id: str
    attempt: int
    started_at: datetime  # when the job was claimed
    expires_in: timedelta
    isolated: bool
    cancel_asked: bool
    percent: float | None
    note: str | None


class AttemptView(msgspec.Struct, frozen=True):
    """An attempt that ended without completing the job, and the fence of its lease."""

    attempt: int
    fence: int
    worker_id: str
    started_at: datetime
    ended_at: datetime
    outcome: str  # retried, snoozed, failed, cancelled, released, rescued; completed in `JobDetails.all_attempts`
    error_class: str | None
    message: str | None
    traceback: str | None
    signature: str | None


class JobView(msgspec.Struct, frozen=True):
    """A job in a list.

    `used_attempts` are those among `attempt` that count against `max_attempts`; None if the job is completed: this is
    not kept then.
    """

    id: str
    seq: int
    queue: str
    task: str
    state: JobState
    priority: int
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_id: str | None = None
    reason: str | None = None
    order_key: str | None = None
    used_attempts: int | None = None
    limit_key: str | None = None


class JobDetails(msgspec.Struct, frozen=True):
    """Everything that is stored about one job.

    `attempts` are those that ended without completing it; `completed_fence` is that of the lease that completed it.
    `unique_key` is "(arguments)" if it was made of them.
    """

    job: JobView
    payload: str
    headers: dict[str, str]
    result: str | None
    attempts: list[AttemptView]
    lease: LeaseView | None
    timeout: float | None = None
    unique_key: str | None = None
    completed_fence: int | None = None

    @property
    def all_attempts(self) -> list[AttemptView]:
        """The attempts in their order, with the one that completed the job."""
        job, fence = self.job, self.completed_fence
        if job.state is not JobState.COMPLETED or job.started_at is None or job.finished_at is None or fence is None:
            return self.attempts
        ends = {"error_class": None, "message": None, "traceback": None, "signature": None}
        worker_id = job.worker_id or ""
        last = AttemptView(job.attempt, fence, worker_id, job.started_at, job.finished_at, "completed", **ends)
        return [*self.attempts, last]

    def __repr__(self) -> str:
        """Show the job, never its arguments or result."""
        return f"<JobDetails {self.job!r}, {len(self.attempts)} attempts without completion>"


class GraphJob(msgspec.Struct, frozen=True):
    """A job of a graph, with the ids of its parents, in the order of its enqueue."""

    id: str
    seq: int
    queue: str
    task: str
    state: JobState
    parents: list[str]


class JobGraph(msgspec.Struct, frozen=True):
    """Jobs that are connected by parents, in the order of their enqueue; `is_cut`: there are more."""

    jobs: list[GraphJob]
    is_cut: bool


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs to list; None means any. `cursor` comes from the previous page.

    Blocked jobs are listed in the order in which they were enqueued.
    """

    state: JobState
    queue: str | None = None
    task: str | None = None
    cursor: str | None = None
    limit: int = 50


class JobPage(msgspec.Struct, frozen=True):
    """One page of a list, and the cursor of the next one (None: there is none)."""

    jobs: list[JobView]
    cursor: str | None


class Count(msgspec.Struct, frozen=True):
    """What happened to the jobs of one queue and task within one minute; `run_time` is the sum of all attempts.

    `rescued` are attempts that ended because their worker or process died or fell silent.

    In a sum over several minutes, `minute_at` is the first of them.
    """

    minute_at: datetime
    queue: str
    task: str
    enqueued: int
    completed: int
    retried: int
    failed: int
    cancelled: int
    rescued: int
    run_time: timedelta
