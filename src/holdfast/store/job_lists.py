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
    limit_key: str | None
    excused: int | None  # None if the job is completed


class JobBody(NamedTuple):
    """The parts of a job that lists omit (`job_body`). Bytes if the store can return a damaged text."""

    payload: str | bytes
    headers: str | bytes | None
    timeout: float | None
    result: str | None
    unique_key: str | None
    fence: int | None  # under which it was completed


class ListedAttempt(NamedTuple):
    """An attempt that ended without completing the job (`job_attempts`)."""

    attempt: int
    fence: int
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
    """A queue (`queues`); `due` is how long its next job has been due, or None without a ready job.

    `is_cut`: it may have more ready jobs than were counted.
    """

    queue: str
    paused: bool
    ready: int
    running: int
    scheduled: int
    blocked: int
    failed: int
    is_cut: bool
    due: int | None


class CountedTask(NamedTuple):
    """A task over all queues (`tasks`); the rest as for a queue."""

    task: str
    paused: bool
    ready: int
    running: int
    scheduled: int
    blocked: int
    failed: int
    is_cut: bool
    due: int | None


class DeclaredLimit(NamedTuple):
    """The last declaration of a limit in code (`declared_limits`), as JSON."""

    kind: str
    name: str
    declared: str


class ListedWorker(NamedTuple):
    """A worker (`workers`), with its last heartbeat and its tasks as JSON, and the number of its leases."""

    heartbeat: str
    tasks: str | None
    started_at: int
    silent: int
    running: int


class ListedTask(NamedTuple):
    """A task with ready jobs in a queue (`waiting_tasks`)."""

    queue: str
    task: str
    paused: bool


class ListedFacts(NamedTuple):
    """What a list of jobs omits and `model.explanation` needs (`job_facts`); `head_id` is that of the order key."""

    now: int
    paused: bool
    is_task_paused: bool
    head_id: str | None


class ListedKey(NamedTuple):
    """What the limit key of a waiting job allows, and its use (`key_of_job`); `wake_at` is the next look at it."""

    max_running: int | None
    rate_jobs: int | None
    rate_span: int | None
    rate_burst: int | None
    rate_at: int
    running: int
    now: int
    wake_at: int | None


class KeyHolder(NamedTuple):
    """A running job of the same limit key (`key_holders`)."""

    job_id: str
    seq: int
    queue: str
    task: str
    worker_id: str


class UnfinishedParent(NamedTuple):
    """A job that has not ended and for which another waits (`unfinished_parents`)."""

    id: str
    seq: int
    task: str
    is_running: bool


class JobsAhead(NamedTuple):
    """How many ready jobs of a task in a queue come before a turn (`jobs_ahead`), up to a limit."""

    queue: str
    task: str
    paused: bool
    number: int


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
    A job that waits for parents is not counted, but its parents are. Ended parents whose children are still to be
    decided are "undecided".
    """

    state: str
    queue: str
    task: str
    paused: bool
    number: int


class LeaseKey(NamedTuple):
    """A lease of a worker (`cancel_asked`, `unacknowledged_leases`)."""

    job_id: str
    seq: int
    fence: int


class FoundId(NamedTuple):
    """A job's id (`find_ids`, `id_of`)."""

    id: str


class SeenJob(NamedTuple):
    """A job as one that waits for it sees it (`job_states`): its state, and its result if it is completed.

    `seq` is None for a parent that was deleted.
    """

    id: str
    state: str
    result: str | None
    seq: int | None


class ParentLink(NamedTuple):
    """A child and one of its parents (`links_of`)."""

    child_seq: int
    parent_seq: int


class GraphRow(NamedTuple):
    """A job of a graph (`graph_jobs`)."""

    id: str
    seq: int
    queue: str
    task: str
    state: str


class NextDue(NamedTuple):
    """How long until the next scheduled job is due, and whether children are to be decided (`next_due`)."""

    wait: int | None
    parents_changed: bool


class ChangedParent(NamedTuple):
    """A record that the children of a job are to be decided again (`changed_parents`)."""

    change_id: int
    seq: int


class UnsettledChild(NamedTuple):
    """A child whose state no longer agrees with those of its parents (`unsettled_children`).

    `is_blocked`: it waits; otherwise it was cancelled because of a parent. `broken_seq` is the first of its parents
    that failed, was cancelled or was deleted; None if there is none.
    """

    seq: int
    is_blocked: bool
    unfinished: bool
    run_anyway: bool
    broken_seq: int | None
    broken_id: str | None
    broken_state: str | None


class FamilyOf(NamedTuple):
    """Whether a job has children, has parents, and has parents that have not ended (`family_of`)."""

    is_parent: bool
    is_child: bool
    unfinished: bool


class NeededParent(NamedTuple):
    """A job that has ended, but has a child that has not (`needed_parents`)."""

    seq: int


class AnyExpired(NamedTuple):
    """Whether a lease has expired, by the store's clock (`any_expired`)."""

    found: bool
    now_us: int
