"""Reads the facts from which `model.explanation` concludes why a job is not running."""

from __future__ import annotations

from holdfast.model.explanation import MOST_AHEAD
from holdfast.model.instants import to_datetime
from holdfast.model.job import JobState
from holdfast.model.job_facts import HolderFact, JobFacts, KeyFact, LaneFact, LeaseFact, ParentFact, WorkerFact
from holdfast.model.limits import LimitUse, limits_of
from holdfast.model.turn import run_at_of
from holdfast.store.job_lists import JobsAhead, KeyHolder, ListedFacts, ListedJob, ListedKey, UnfinishedParent
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import WorkerView
from holdfast.store.verbs.job_admin import not_found
from holdfast.store.verbs.job_views import leases
from holdfast.store.verbs.limits import limits
from holdfast.store.verbs.queue_views import workers

_MOST_HOLDERS = 1000  # leases that are searched for those that hold a limit
_MOST_PARENTS = 10_000
_CLAIMABLE = frozenset({JobState.READY, JobState.SCHEDULED})


def job_facts(rows: JobRows, job_id: str) -> Steps[JobFacts]:
    """Return the facts about a job and, if it waits behind one, about the head of its order key."""
    fleet = tuple(worker_fact(view) for view in (yield from workers(rows)))
    return (yield from _facts(rows, job_id, fleet))


def _facts(rows: JobRows, job_id: str, fleet: tuple[WorkerFact, ...]) -> Steps[JobFacts]:
    found = yield from rows.page(ListedJob, "job_view", id=job_id)
    if not found:
        raise not_found(job_id)
    (job,) = found
    (more,) = yield from rows.page(ListedFacts, "job_facts", id=job_id)
    state = JobState(job.state)
    held = (yield from leases(rows, 1, seq=job.seq)) if state is JobState.RUNNING else []
    ahead: list[JobsAhead] = []
    uses: list[LimitUse] = []
    if state in _CLAIMABLE:
        uses = [use for use in (yield from limits(rows)) if use.key in limits_of(job.queue, job.task)]
        ahead = yield from rows.page(JobsAhead, "jobs_ahead", turn=job.turn, seq=job.seq, limit=MOST_AHEAD)
    is_full = any(use.kind != "key" and use.max_running is not None and use.running >= use.max_running for use in uses)
    holders = (yield from leases(rows, _MOST_HOLDERS)) if is_full else []
    parents: list[UnfinishedParent] = []
    if state is JobState.BLOCKED:
        parents = yield from rows.page(UnfinishedParent, "unfinished_parents", seq=job.seq, limit=_MOST_PARENTS)
    waits = state is JobState.BLOCKED and not parents and more.head_id not in {None, job.id}
    head = (yield from _facts(rows, str(more.head_id), fleet)) if waits else None
    is_limited = state is JobState.BLOCKED and not parents and job.limit_key is not None
    key = (yield from _key(rows, job)) if is_limited else None
    return JobFacts(
        job_id=job.id,
        seq=job.seq,
        queue=job.queue,
        task=job.task,
        state=state,
        attempt=job.attempt,
        due_at=to_datetime(run_at_of(job.turn, job.priority)),
        now=to_datetime(more.now),
        order_key=job.order_key,
        finished_at=None if job.finished_at is None else to_datetime(job.finished_at),
        end_reason=job.reason,
        is_queue_paused=bool(more.paused),
        is_task_paused=bool(more.is_task_paused),
        lease=LeaseFact(held[0].worker_id, held[0].started_at, held[0].expires_in) if held else None,
        workers=fleet,
        ahead=[LaneFact(lane.queue, lane.task, bool(lane.paused), lane.number) for lane in ahead],
        limits=uses,
        holders=[
            HolderFact(lease.job_id, lease.seq, lease.queue, lease.task, lease.worker_id)
            for lease in holders
            if lease.queue == job.queue or lease.task == job.task
        ],
        parents=[ParentFact(row.id, row.seq, row.task, bool(row.is_running)) for row in parents],
        head=head,
        key=key,
    )


def _key(rows: JobRows, job: ListedJob) -> Steps[KeyFact | None]:
    found = yield from rows.page(ListedKey, "key_of_job", id=job.id)
    if not found:
        return None
    (key,) = found
    use = LimitUse("key", job.task, *key[:-1])
    is_limited = use.max_running is not None or use.rate_jobs is not None
    holders = yield from rows.page(KeyHolder, "key_holders", id=job.id, limit=_MOST_HOLDERS)
    return KeyFact(
        limit_key=job.limit_key or "",
        limit=use.limit if is_limited else None,
        admitted=key.running,
        until_at=None if key.wake_at is None else to_datetime(key.wake_at),
        holders=tuple(HolderFact(*holder) for holder in holders),
    )


def worker_fact(view: WorkerView) -> WorkerFact:
    """Return what decides whether a worker can run a job."""
    heartbeat = view.heartbeat
    return WorkerFact(
        worker_id=heartbeat.worker_id,
        queues=heartbeat.queues,
        tasks=heartbeat.tasks,
        concurrency=heartbeat.concurrency,
        running=view.running,
        lease=heartbeat.lease,
        silent=view.silent,
    )
