"""Why a job is not running: the facts that a store reads, and the one cause that follows from them.

`explain` asks in the order in which a job meets the obstacles, and answers with the first one: has it ended, does it
run, what does it wait for, is it due, may it be claimed, and by which worker. A cause is data, which
`reports.explanation_text` puts into words. To add a cause: a class here, its facts in `JobFacts`, and its place in
`_cause` or `_OBSTACLES`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.model.instants import MICROSECOND
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.model.job_facts import HolderFact, JobFacts, LeaseFact, ParentFact
from holdfast.model.lease_rules import is_overdue

_SOME: Final = 5  # jobs that a cause names
MOST_AHEAD: Final = 10_000
"""The jobs of one queue and task that are counted ahead of a job: a cause must be cheap to find."""


# --- the causes -----------------------------------------------------------------------------------------------------


class Cause(msgspec.Struct, frozen=True, tag_field="cause"):
    """Why a job is not running. Each kind of cause is a class with its data."""


class Ended(Cause, frozen=True, tag="ended"):
    """It has ended; `why` says why it failed or was cancelled."""

    finished_at: datetime | None
    why: str | None


class Running(Cause, frozen=True, tag="running"):
    """It does run."""

    worker_id: str
    since_at: datetime


class HolderSilent(Cause, frozen=True, tag="holder_silent"):
    """A worker without heartbeat holds its lease until `until_at`; then any live worker makes the job ready again.

    `silent` is None if the worker is not listed.
    """

    worker_id: str
    silent: timedelta | None
    until_at: datetime
    is_expired: bool
    live_workers: int


class NotDue(Cause, frozen=True, tag="not_due"):
    """It is scheduled; after an attempt it is due again at `due_at`."""

    due_at: datetime
    attempt: int


class OrderKeyHeld(Cause, frozen=True, tag="order_key_held"):
    """Another job is the head of its order key and must end first; `head` explains that job."""

    order_key: str
    head: Explanation


class WaitingForJobs(Cause, frozen=True, tag="waiting_for_jobs"):
    """Jobs that it comes after have not ended: `number` of them, `parents` are the first."""

    number: int
    parents: tuple[ParentFact, ...]


class NoLongerBlocked(Cause, frozen=True, tag="no_longer_blocked"):
    """It is blocked, but nothing that it waits for is left: a worker has yet to make it ready."""


class QueuePaused(Cause, frozen=True, tag="queue_paused"):
    """Its queue is paused."""

    queue: str


class TaskPaused(Cause, frozen=True, tag="task_paused"):
    """Its task is paused, in all queues."""

    task: str


class QueueUnserved(Cause, frozen=True, tag="queue_unserved"):
    """No live worker serves its queue."""

    queue: str
    live_workers: int


class TaskUnknown(Cause, frozen=True, tag="task_unknown"):
    """The live workers that serve its queue do not know its task."""

    queue: str
    task: str
    worker_ids: tuple[str, ...]


class LimitReached(Cause, frozen=True, tag="limit_reached"):
    """The limit of its queue or task (`kind`) allows no more running jobs; `holders` are some that run."""

    kind: str
    name: str
    most: int
    running: int
    holders: tuple[HolderFact, ...]


class RateLimited(Cause, frozen=True, tag="rate_limited"):
    """The rate of its queue or task (`kind`) allows no start before `until_at`."""

    kind: str
    name: str
    rate: str
    until_at: datetime


class KeyLimitReached(Cause, frozen=True, tag="key_limit_reached"):
    """The limit of its task allows no more jobs of its limit key at once; `admitted` run or are next to run."""

    task: str
    limit_key: str
    most: int
    admitted: int
    holders: tuple[HolderFact, ...]


class KeyRateLimited(Cause, frozen=True, tag="key_rate_limited"):
    """The rate of its task allows no start of its limit key before `until_at`."""

    task: str
    limit_key: str
    rate: str
    until_at: datetime


class WorkersBusy(Cause, frozen=True, tag="workers_busy"):
    """Every worker that can run it holds as many jobs as it runs at a time."""

    ahead: int
    is_ahead_capped: bool
    workers: int
    slots: int


class NextUp(Cause, frozen=True, tag="next_up"):
    """Nothing prevents it: a worker with a free slot will claim it, after the jobs ahead."""

    ahead: int
    is_ahead_capped: bool
    workers: int


class Explanation(msgspec.Struct, frozen=True):
    """A job, its state, and why it is not running."""

    job_id: str
    seq: int
    queue: str
    task: str
    state: JobState
    cause: Cause


# --- the decision ---------------------------------------------------------------------------------------------------


def explain(facts: JobFacts) -> Explanation:
    """Return why a job is not running."""
    return Explanation(facts.job_id, facts.seq, facts.queue, facts.task, facts.state, _cause(facts))


def _cause(facts: JobFacts) -> Cause:
    if facts.state in FINAL_STATES:
        return Ended(facts.finished_at, facts.end_reason)
    if facts.lease is not None:
        return _holder(facts, facts.lease)
    if facts.parents:
        return WaitingForJobs(len(facts.parents), tuple(facts.parents[:_SOME]))
    if facts.head is not None:
        return OrderKeyHeld(facts.order_key or "", explain(facts.head))
    if facts.state is JobState.SCHEDULED and facts.due_at > facts.now:
        return NotDue(facts.due_at, facts.attempt)
    return next(filter(None, (obstacle(facts) for obstacle in _OBSTACLES)), None) or _free(facts)


def _holder(facts: JobFacts, lease: LeaseFact) -> Cause:
    """Distinguish a job that runs from one whose worker has died; callers of `app.claim` send no heartbeats."""
    holder = next((worker for worker in facts.workers if worker.worker_id == lease.worker_id), None)
    is_expired = lease.expires_in <= timedelta(0)
    is_silent = is_expired if holder is None else is_overdue(holder.silent, holder.lease)
    if not is_silent:
        return Running(lease.worker_id, lease.started_at)
    return HolderSilent(
        lease.worker_id,
        None if holder is None else holder.silent,
        facts.now + lease.expires_in,
        is_expired,
        len(facts.live),
    )


def _paused(facts: JobFacts) -> Cause | None:
    if facts.is_queue_paused:
        return QueuePaused(facts.queue)
    return TaskPaused(facts.task) if facts.is_task_paused else None


def _unserved(facts: JobFacts) -> Cause | None:
    is_served = any(worker.serves(facts.queue) for worker in facts.live)
    return None if is_served else QueueUnserved(facts.queue, len(facts.live))


def _unknown(facts: JobFacts) -> Cause | None:
    if facts.able:
        return None
    serving = tuple(sorted(worker.worker_id for worker in facts.live if worker.serves(facts.queue)))
    return TaskUnknown(facts.queue, facts.task, serving)


def _key_full(facts: JobFacts) -> Cause | None:
    key = facts.key
    if key is None or key.limit is None:
        return None
    most, rate = key.limit.running, key.limit.rate
    if most is not None and key.admitted >= most:
        return KeyLimitReached(facts.task, key.limit_key, most, key.admitted, key.holders[:_SOME])
    if rate is None or key.until_at is None:
        return None
    return KeyRateLimited(facts.task, key.limit_key, rate, key.until_at)


def _not_yet_ready(facts: JobFacts) -> Cause | None:
    """For example: the parents ended in a transaction whose process died before it had released their children."""
    return NoLongerBlocked() if facts.state is JobState.BLOCKED else None


def _full(facts: JobFacts) -> Cause | None:
    for use in facts.limits:
        if use.kind != "key" and use.max_running is not None and use.running >= use.max_running:
            holders = tuple(job for job in facts.holders if getattr(job, use.kind) == use.name)
            return LimitReached(use.kind, use.name, use.max_running, use.running, holders[:_SOME])
    return None


def _too_fast(facts: JobFacts) -> Cause | None:
    waits = {use: use.wait_after(0) or 0 for use in facts.limits if use.rate_jobs is not None and use.kind != "key"}
    longest = max(waits, key=waits.__getitem__, default=None)
    if longest is None or not waits[longest]:
        return None
    until = facts.now + waits[longest] * MICROSECOND
    return RateLimited(longest.kind, longest.name, longest.limit.rate or "", until)


def _busy(facts: JobFacts) -> Cause | None:
    able = facts.able
    if any(worker.running < worker.concurrency for worker in able):
        return None
    ahead, is_capped = _ahead(facts)
    return WorkersBusy(ahead, is_capped, len(able), sum(worker.concurrency for worker in able))


def _free(facts: JobFacts) -> Cause:
    return NextUp(*_ahead(facts), len(facts.able))


def _ahead(facts: JobFacts) -> tuple[int, bool]:
    """Return how many jobs the able workers would claim before this one, and whether there may be more."""
    lanes = [
        lane
        for lane in facts.ahead
        if not lane.is_paused and any(worker.serves(lane.queue) and worker.knows(lane.task) for worker in facts.able)
    ]
    return sum(lane.number for lane in lanes), any(lane.number >= MOST_AHEAD for lane in lanes)


_OBSTACLES: tuple[Callable[[JobFacts], Cause | None], ...] = (
    _paused,
    _unserved,
    _unknown,
    _key_full,
    _not_yet_ready,
    _full,
    _too_fast,
    _busy,
)
"""What keeps a due job from being claimed, in the order in which to remove it."""
