"""The facts that explain why a job of the reference model is not running."""

from __future__ import annotations

from collections import Counter

from holdfast.model.explanation import MOST_AHEAD
from holdfast.model.instants import MICROSECOND, to_datetime
from holdfast.model.job import JobState, parents_of
from holdfast.model.job_facts import HolderFact, JobFacts, KeyFact, LaneFact, LeaseFact, ParentFact
from holdfast.model.limits import LimitKey
from holdfast.store.values import WaitingTask
from holdfast.store.verbs.explain import worker_fact
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.records import ReferenceJob
from holdfast.testing.reference.views import workers

_CLAIMABLE = frozenset({JobState.READY, JobState.SCHEDULED})


def job_facts(model: Reference, job_id: str) -> JobFacts:
    """Return the facts about a job; raises `JobNotFound`."""
    record = model.require(job_id)
    new, lease = record.new, record.lease
    parents = _unfinished_parents(model, record) if record.state is JobState.BLOCKED else []
    waits = record.state is JobState.BLOCKED and not parents
    head = model.of_order_key(record.order_scope)[0] if waits and record.order_scope is not None else None
    return JobFacts(
        job_id=new.id,
        seq=record.seq,
        queue=new.queue,
        task=new.task,
        state=record.state,
        attempt=record.counters.attempt,
        due_at=to_datetime(record.run_us),
        now=to_datetime(model.now),
        order_key=new.order_key,
        finished_at=None if record.finished_us is None else to_datetime(record.finished_us),
        end_reason=record.reason,
        is_queue_paused=new.queue in model.paused,
        is_task_paused=new.task in model.paused_tasks,
        lease=None
        if lease is None
        else LeaseFact(lease.worker_id, to_datetime(lease.started_us), (lease.expires_us - model.now) * MICROSECOND),
        workers=tuple(worker_fact(view) for view in workers(model)),
        ahead=_ahead(model, record) if record.state in _CLAIMABLE else (),
        limits=[use for use in model.limit_uses() if use.key in model.limited(record)]
        if record.state in _CLAIMABLE
        else (),
        holders=[
            HolderFact(held.new.id, held.seq, held.new.queue, held.new.task, active.worker_id)
            for held, active in model.held()
            if held.new.queue == new.queue or held.new.task == new.task
        ],
        parents=parents,
        head=None if head is None or head is record else job_facts(model, head.new.id),
        key=_key(model, record) if waits and record.limit_scope is not None else None,
    )


def _key(model: Reference, of: ReferenceJob) -> KeyFact:
    admitted = [
        record
        for record in model.records.values()
        if record.limit_scope == of.limit_scope and record.admission is not None
    ]
    wake = model.key_wakes[of.limit_scope or ("", "", "")]
    return KeyFact(
        limit_key=of.new.limit_key or "",
        limit=model.limits.get(LimitKey("key", of.new.task)),
        admitted=len(admitted),
        until_at=None if wake is None else to_datetime(wake),
        holders=tuple(
            HolderFact(held.new.id, held.seq, held.new.queue, held.new.task, active.worker_id)
            for held, active in model.held()
            if held in admitted
        ),
    )


def _unfinished_parents(model: Reference, of: ReferenceJob) -> list[ParentFact]:
    found = [record for parent_id in parents_of(of.new) if (record := model.records.get(parent_id)) is not None]
    return [
        ParentFact(record.new.id, record.seq, record.new.task, record.state is JobState.RUNNING)
        for record in found
        if not record.is_final
    ]


def _ahead(model: Reference, of: ReferenceJob) -> list[LaneFact]:
    counted: Counter[tuple[str, str]] = Counter()
    for record in model.records.values():
        is_earlier = (record.turn_us, record.seq) < (of.turn_us, of.seq)
        counted[record.new.queue, record.new.task] += record.state is JobState.READY and is_earlier
    return [
        LaneFact(queue, task, queue in model.paused or task in model.paused_tasks, min(number, MOST_AHEAD))
        for (queue, task), number in counted.items()
    ]


def waiting_tasks(model: Reference) -> list[WaitingTask]:
    """List the tasks that have ready jobs, per queue."""
    ready = [record.new for record in model.records.values() if record.state is JobState.READY]
    names = sorted({(new.queue, new.task) for new in ready})
    return [WaitingTask(queue, task, queue in model.paused or task in model.paused_tasks) for queue, task in names]
