"""Transitions without a lease: time, the rescue of silent workers, retention and operator actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import JobNotFound
from holdfast.model.budget import BudgetDecision as Decision
from holdfast.model.budget import after_loss, after_retry, after_return, was_alone
from holdfast.model.instants import MICROSECOND, span_micros, to_datetime, to_micros
from holdfast.model.job import JobState
from holdfast.model.outcome import Failure
from holdfast.store.values import (
    AttemptView,
    Cancellation,
    Outstanding,
    Promotion,
    Rescued,
    Retention,
    WorkerHeartbeat,
)
from holdfast.testing.reference.children import ReferenceChildren
from holdfast.testing.reference.key_limits import ReferenceKeyLimits
from holdfast.testing.reference.records import ReferenceJob, ReferenceLease, WorkerRecord
from holdfast.testing.reference.unique import ReferenceUniqueKeys


class ReferenceMaintenance(ReferenceKeyLimits, ReferenceUniqueKeys, ReferenceChildren):
    """The verbs without a lease, and the transitions that several verbs share."""

    def promote(self, limit: int) -> Promotion:
        """Move at most `limit` due jobs from scheduled to ready, the longest due first; decide on all children."""
        released = self.decide_children()
        scheduled = sorted(
            (record for record in self.records.values() if record.state is JobState.SCHEDULED),
            key=lambda record: (record.run_us, record.seq),
        )
        due = [record for record in scheduled if record.run_us <= self.now][:limit]
        for record in due:
            record.state = JobState.READY
        self.settle_keys()
        self.wake_keys()
        left = [record.run_us for record in self.records.values() if record.state is JobState.SCHEDULED]
        left += [] if (wake := self.next_wake()) is None else [wake]
        next_due = max(min(left) - self.now, 0) * MICROSECOND if left else None
        return Promotion(moved=len(due) + released, next_due=next_due)

    def rescue(self, unbroken: timedelta | None, limit: int) -> list[Rescued]:
        """Take at most `limit` expired leases from their workers."""
        access = None if unbroken is None else span_micros(unbroken)
        expired = [
            (record, active)
            for record, active in self.held()
            if active.expires_us <= self.now and (access is None or 2 * access >= active.duration_us)
        ]
        return self._rescue(expired[:limit], "the lease expired")

    def rescue_worker(self, worker_id: str, reason: str, limit: int) -> list[Rescued]:
        """Take at most `limit` leases of a worker known to be dead, and forget the worker."""
        held = [(record, active) for record, active in self.held() if active.worker_id == worker_id]
        if len(held) <= limit:
            self.workers.pop(worker_id, None)
        return self._rescue(held[:limit], reason)

    def _rescue(self, taken: Sequence[tuple[ReferenceJob, ReferenceLease]], reason: str) -> list[Rescued]:
        held = Counter(active.worker_id for _, active in self.held())
        failure = Failure(error_class="WorkerLost", message=reason)
        for record, active in taken:
            self.lose(record, active, failure, alone=was_alone(isolated=active.isolated, held=held[active.worker_id]))
        workers = {active.worker_id for _, active in taken}
        for _, active in self.held():
            active.isolated = active.isolated and active.worker_id not in workers
        rescued = [self._rescued(record, active) for record, active in taken]
        self.settle_children()
        return rescued

    def _rescued(self, record: ReferenceJob, active: ReferenceLease) -> Rescued:
        return Rescued(
            job_id=record.new.id,
            task=record.new.task,
            queue=record.new.queue,
            worker_id=active.worker_id,
            attempt=record.counters.attempt,
            state=record.state,
        )

    def run(self, job_id: str) -> bool:
        """Operator action: make a scheduled job due now; False if it is not scheduled."""
        record = self.require(job_id)
        if record.state is not JobState.SCHEDULED:
            return False
        record.due_at(self.now)
        record.leave(JobState.READY)
        record.retrying = False
        self.settle_children()
        return True

    def reset(self, job_id: str) -> bool:
        """Operator action: revoke a running job's lease; False if it is not running."""
        record = self.require(job_id)
        if record.lease is None:
            return False
        self.record_attempt(record, record.lease, "released", None)
        self.settle(record, Decision(after_return(record.counters), None))
        self.settle_children()
        return True

    def cancel(self, job_id: str, reason: str) -> Cancellation:
        """Cancel a job that has not started, or request it of the worker that runs it."""
        cancellation = self._cancel(job_id, reason)
        self.settle_children()
        return cancellation

    def _cancel(self, job_id: str, reason: str) -> Cancellation:
        record = self.require(job_id)
        if record.is_final:
            return Cancellation.TOO_LATE
        if record.state is JobState.RUNNING:
            record.cancel_reason = reason
            return Cancellation.ASKED
        self.set_cancelled(record, reason)
        return Cancellation.CANCELLED

    def cancel_all(self, job_ids: Sequence[str], reason: str) -> dict[str, Cancellation]:
        """Do the same to each of these jobs; an id that no job has is missing."""
        known = [job_id for job_id in dict.fromkeys(job_ids) if job_id in self.records]
        cancellations = {job_id: self._cancel(job_id, reason) for job_id in known}
        self.settle_children()
        return cancellations

    def delete(
        self, job_ids: Sequence[str], states: Collection[JobState], older_than: timedelta
    ) -> dict[str, JobState | None]:
        """Delete jobs that ended in one of the states, long enough ago; None for these, their state for the others."""
        answers: dict[str, JobState | None] = {}
        for job_id in job_ids:
            record = self.records.get(job_id)
            if record is None:
                continue
            is_old = not older_than or (record.finished_us or 0) + span_micros(older_than) <= self.now
            if record.is_final and record.state in states and is_old and not self.is_needed(record):
                self._remove(job_id)
                answers[job_id] = None
            else:
                answers[job_id] = record.state
        return answers

    def retry(self, job_id: str, ended_by: datetime | None = None) -> bool:
        """Make a failed or cancelled job ready with a fresh budget; False if it is in another state, or ended later."""
        record = self.require(job_id)
        if record.state not in {JobState.FAILED, JobState.CANCELLED}:
            return False
        if ended_by is not None and (record.finished_us or 0) > to_micros(ended_by):
            return False
        self.take_key_back(record)
        record.counters = after_retry(record.counters)
        record.cancel_reason = record.reason = record.finished_us = None
        self.last_seq += 1
        record.place = self.last_seq
        record.is_broken = False
        record.waits = self.has_unfinished_parents(record)
        is_second = record.order_scope is not None and bool(self.of_order_key(record.order_scope))
        record.state = JobState.BLOCKED if is_second or record.waits else JobState.READY
        record.due_at(self.now)
        self.settle_children()
        return True

    def prune(self, retention: Retention, limit: int) -> int:
        """Delete at most `limit` finished jobs past their retention; return how many."""
        kept = {
            JobState.COMPLETED: retention.completed,
            JobState.FAILED: retention.failed,
            JobState.CANCELLED: retention.cancelled,
        }
        past = [
            job_id
            for job_id, record in self.records.items()
            if record.finished_us is not None
            and (span := kept[record.state]) is not None
            and record.finished_us + span_micros(span) <= self.now
            and not self.is_needed(record)
        ][:limit]
        for job_id in past:
            self._remove(job_id)
        self.drop_past_keys()
        return len(past)

    def _remove(self, job_id: str) -> None:
        del self.records[job_id]
        self.drop_keys_of(job_id)
        self.forget_parent(job_id)

    def pause(self, queue: str) -> bool:
        """Pause a queue: its jobs are not claimed; False if it was paused already."""
        if queue in self.paused:
            return False
        self.queues.add(queue)
        self.paused.add(queue)
        return True

    def resume(self, queue: str) -> bool:
        """Resume a queue; False if it was not paused."""
        if queue not in self.paused:
            return False
        self.paused.remove(queue)
        return True

    def pause_task(self, task: str) -> bool:
        """Pause a task: its jobs are not claimed, in any queue; False if it was paused already."""
        if task in self.paused_tasks:
            return False
        self.known_tasks.add(task)
        self.paused_tasks.add(task)
        return True

    def resume_task(self, task: str) -> bool:
        """Resume a task; False if it was not paused."""
        if task not in self.paused_tasks:
            return False
        self.paused_tasks.remove(task)
        return True

    def outstanding(self, tasks: Sequence[str], queues: Sequence[str] | None) -> Outstanding:
        """Count the outstanding work of a worker that knows these tasks and serves these queues."""
        ready = retrying = blocked = running = delayed = paused = unknown = 0
        for record in self.records.values():
            if record.is_final or record.waits or (queues is not None and record.new.queue not in queues):
                continue
            head = record if record.order_scope is None else self.of_order_key(record.order_scope)[0]
            if record.state is JobState.RUNNING:
                running += 1
            elif record.new.queue in self.paused or (
                head.state is not JobState.RUNNING and head.new.task in self.paused_tasks
            ):
                paused += 1
            elif head.state is JobState.SCHEDULED and not head.retrying:
                delayed += 1
            elif head.state is not JobState.RUNNING and head.new.task not in tasks:
                unknown += 1
            elif record.state is JobState.BLOCKED:
                blocked += 1
            elif record.state is JobState.READY:
                ready += 1
            else:
                retrying += 1
        return Outstanding(
            ready=ready,
            retrying=retrying,
            blocked=blocked,
            running=running,
            delayed=delayed,
            paused=paused,
            unknown=unknown,
        )

    def heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        """Record a worker's heartbeat."""
        known = self.workers.get(heartbeat.worker_id)
        started = self.now if known is None else known.started_us
        if known is not None:
            heartbeat = msgspec.structs.replace(heartbeat, tasks=known.heartbeat.tasks)
        self.workers[heartbeat.worker_id] = WorkerRecord(heartbeat=heartbeat, started_us=started, seen_us=self.now)

    def require(self, job_id: str) -> ReferenceJob:
        """Return the job, or raise `JobNotFound`."""
        try:
            return self.records[job_id]
        except KeyError:
            message = f"no job {job_id}"
            raise JobNotFound(message) from None

    def fail(self, record: ReferenceJob, reason: str) -> None:
        """Move the job to failed."""
        self.end(record, JobState.FAILED, reason)
        self.count(record, "failed")

    def set_cancelled(self, record: ReferenceJob, reason: str) -> None:
        """Move the job to cancelled."""
        self.end(record, JobState.CANCELLED, reason)
        self.count(record, "cancelled")

    def end(self, record: ReferenceJob, state: JobState, reason: str | None) -> None:
        """Move the job to a final state; if it was the head of an order key, unblock the next job."""
        record.end(state, self.now, reason)
        waiting = [] if record.order_scope is None else self.of_order_key(record.order_scope)
        if waiting and waiting[0].state is JobState.BLOCKED:
            waiting[0].state = JobState.SCHEDULED if waiting[0].run_us > self.now else JobState.READY

    def lose(self, record: ReferenceJob, active: ReferenceLease, failure: Failure, *, alone: bool) -> None:
        """Take the job from a worker that died or fell silent."""
        self.record_attempt(record, active, "rescued", failure)
        self.count(record, "lost")
        self.settle(record, after_loss(record.counters, max_attempts=record.new.max_attempts, alone=alone))

    def settle(self, record: ReferenceJob, decision: Decision) -> None:
        """Make the job ready again at its old turn, unless it failed or has a cancel request."""
        record.counters = decision.counters
        if record.cancel_reason is not None:
            self.set_cancelled(record, record.cancel_reason)
        elif decision.failed_because is not None:
            self.fail(record, decision.failed_because)
        else:
            record.leave(JobState.READY)

    def record_attempt(
        self, record: ReferenceJob, active: ReferenceLease, outcome: str, failure: Failure | None
    ) -> None:
        """Record an attempt that did not complete."""
        record.keep_attempt(
            AttemptView(
                attempt=record.counters.attempt,
                fence=active.fence,
                worker_id=active.worker_id,
                started_at=to_datetime(active.started_us),
                ended_at=to_datetime(self.now),
                outcome=outcome,
                error_class=failure.error_class if failure else None,
                message=failure.message if failure else None,
                traceback=failure.traceback if failure else None,
                signature=failure.signature if failure else None,
            )
        )
