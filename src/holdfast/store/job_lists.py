"""The rows of lists that a store returns from `JobRows.page`.

A statement names its columns as the fields here. Instants and spans are microseconds. A store without a boolean type
returns 0 and 1.
"""

from __future__ import annotations

from typing import NamedTuple


class ListedJob(NamedTuple):
    """A job in a list: `list_ready`, `list_scheduled`, … one list per state."""

    id: str
    seq: int
    queue: str
    task: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    enqueued_at: int
    turn: int
    started_at: int | None
    finished_at: int | None
    worker_id: str | None
    reason: str | None
    order_key: str | None
    excused: int | None  # None if the job has ended


class JobBody(NamedTuple):
    """The parts of a job that lists omit (`job_body`). Bytes if the store can return a damaged text."""

    payload: str | bytes
    headers: str | bytes | None
    timeout: float | None
    result: str | None


class ListedAttempt(NamedTuple):
    """An attempt that ended without completing the job (`job_attempts`)."""

    attempt: int
    worker_id: str
    started_at: int
    ended_at: int
    outcome: str
    error_class: str | None
    message: str | None
    traceback: str | None
    signature: str | None


class ListedLease(NamedTuple):
    """A lease (`leases`); `expires_in` is negative once it has expired."""

    job_id: str
    seq: int
    fence: int
    queue: str
    task: str
    worker_id: str
    attempt: int
    started_at: int
    expires_in: int
    isolated: bool
    cancel_asked: bool
    percent: float | None
    note: str | None


class ListedQueue(NamedTuple):
    """A queue (`queues`); `due` is how long its next job has been due, or None without a ready job."""

    queue: str
    paused: bool
    ready: int
    running: int
    scheduled: int
    blocked: int
    failed: int
    due: int | None


class ListedWorker(NamedTuple):
    """A worker (`workers`), with its last heartbeat as JSON."""

    heartbeat: str
    started_at: int
    silent: int


class ListedCount(NamedTuple):
    """The counters of a minute (`counts`), or their sums with the first minute (`count_sums`)."""

    minute_at: int
    queue: str
    task: str
    enqueued: int
    completed: int
    retried: int
    failed: int
    cancelled: int
    lost: int
    run_time: int


class QueueDepth(NamedTuple):
    """How many jobs of a queue are ready (`depth`)."""

    number: int


class OutstandingJobs(NamedTuple):
    """Jobs that have not ended (`outstanding`), counted.

    `state` is ready, running, retrying, delayed, blocked or "behind running". Jobs behind the head of an order key are
    counted under the task of the head: "behind running" if it runs, delayed if its caller delayed it, else blocked.
    """

    state: str
    queue: str
    task: str
    paused: bool
    number: int


class HeldLease(NamedTuple):
    """A lease of a worker (`cancel_asked`, `unacknowledged_leases`)."""

    job_id: str
    seq: int
    fence: int


class FoundId(NamedTuple):
    """A job's id (`find_ids`, `id_of`)."""

    id: str


class StoredResult(NamedTuple):
    """A result (`job_result`)."""

    result: str | None


class SeenJob(NamedTuple):
    """A job as one that waits for it sees it (`job_states`): its state, and its result if it is completed."""

    id: str
    state: str
    result: str | None


class NextDue(NamedTuple):
    """How long until the next scheduled job is due (`next_due`)."""

    wait: int


class AnyExpired(NamedTuple):
    """Whether a lease has expired (`any_expired`)."""

    found: bool
