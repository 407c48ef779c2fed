"""The life of a job under its lease."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import assert_never

import msgspec

from holdfast.model.budget import BudgetDecision, after_interruption, after_return
from holdfast.model.conditions import OnConflict, Unique
from holdfast.model.instants import MICROSECOND, span_micros
from holdfast.model.job import JobState, Lease, LeasedJob, NewJob, check_ids
from holdfast.model.limits import LimitKey
from holdfast.model.outcome import Cancelled, Completed, Failed, Lost, Outcome, Retried, Snoozed
from holdfast.store.values import (
    Claim,
    ClaimRequest,
    Enqueued,
    Extension,
    Finish,
    Standing,
    Verdict,
)
from holdfast.testing.reference.maintenance import ReferenceMaintenance
from holdfast.testing.reference.records import ReferenceJob, ReferenceLease


class Reference(ReferenceMaintenance):
    """The reference model: every verb of the port for jobs and queues."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs, all or none; True for each new one, or the id of the job that holds its unique key."""
        sizes = [len(job.payload.encode()) for job in jobs]  # before the first write: a payload may not be encodable
        if any(job.conditions is not None for job in jobs):
            check_ids(jobs)
        self.waiting_ids = self.waiting(jobs)
        if any(unique.on_conflict is OnConflict.RAISE for job in jobs if (unique := _unique(job))):
            copy.deepcopy(self).enqueue_all(jobs, sizes)  # raises before the first write
        created = self.enqueue_all(jobs, sizes)
        self.settle_children()
        return created

    def enqueue_all(self, jobs: Sequence[NewJob], sizes: Sequence[int]) -> list[Enqueued]:
        """Enqueue jobs one by one; raises `UniqueConflict` in the middle."""
        return [self._enqueue(job, size) for job, size in zip(jobs, sizes, strict=True)]

    def _enqueue(self, job: NewJob, size: int) -> Enqueued:
        if job.id in self.records:
            return False
        if (unique := _unique(job)) and (holder := self.unique_holder(job, unique)):
            return holder
        now, due = self.now, self.due_us(job)
        self.last_seq += 1
        state = JobState.SCHEDULED if due > now else JobState.READY
        seq = self.last_seq
        record = ReferenceJob(
            new=job,
            size=size,
            seq=seq,
            state=state,
            enqueued_us=now,
            run_us=due,
            turn_us=due,
            place=seq,
        )
        record.due_at(due)
        if job.id in self.waiting_ids:
            record.state, record.waits = JobState.BLOCKED, True
        elif record.order_scope is not None and self.of_order_key(record.order_scope):
            record.state = JobState.BLOCKED
        self.records[job.id] = record
        self.queues.add(job.queue)
        self.known_tasks.add(job.task)
        self.count(record, "enqueued")
        return True

    def claim(self, request: ClaimRequest) -> list[LeasedJob]:
        """Lease ready jobs to a worker, in order of turn, then seq; those that a limit refuses are passed over."""
        return self.claim_within_limits(request).jobs

    def claim_within_limits(self, request: ClaimRequest) -> Claim:
        """Do the same; return also whether a limit refused a job, and when its rate allows the next."""
        fence = self.last_fence + 1
        duration = span_micros(request.lease)
        taken: list[LeasedJob] = []
        size = 0
        slots = request.limit if request.slots is None else request.slots
        refusing: set[LimitKey] = set()
        is_held_back = False
        for record in self._claimable(request):
            if len(taken) >= request.limit:
                break
            refused = {use.key for use in self.refusing(record)}
            if refused:
                refusing |= refused
                continue
            if self.limited(record):
                is_held_back = is_held_back or not slots
                if not slots:
                    continue
            size += record.size
            if taken and size > request.max_bytes:
                break
            slots -= bool(self.limited(record))
            self.spend(record)
            counters = record.counters
            record.counters = msgspec.structs.replace(counters, attempt=counters.attempt + 1)
            record.state = JobState.RUNNING
            record.retrying = False
            record.lease = ReferenceLease(
                fence=fence,
                worker_id=request.worker_id,
                started_us=self.now,
                expires_us=self.now + duration,
                duration_us=duration,
                isolated=counters.lost > 0 and request.isolates,
            )
            taken.append(record.leased(fence))
        if taken:
            self.last_fence = fence
        waits = [use.wait_after(0) for use in self.limit_uses() if use.key in refusing]
        wait = min((wait for wait in waits if wait is not None), default=None)
        span = None if wait is None else wait * MICROSECOND
        limited = frozenset(job.seq for job in taken if self.limited(self.records[job.id]))
        return Claim(taken, is_limited=bool(refusing) or is_held_back, wait=span, limited=limited)

    def _claimable(self, request: ClaimRequest) -> list[ReferenceJob]:
        claimable = [
            record
            for record in self.records.values()
            if record.state is JobState.READY
            and record.new.task in request.tasks
            and (request.queues is None or record.new.queue in request.queues)
            and record.new.queue not in self.paused
            and record.new.task not in self.paused_tasks
        ]
        return sorted(claimable, key=lambda record: (record.turn_us, record.seq))

    def finish(self, finishes: Sequence[Finish]) -> list[Verdict]:
        """Write the outcomes of attempts; one verdict each, in order."""
        verdicts = [self._finish(each.lease, each.outcome) for each in finishes]
        self.settle_children()
        return verdicts

    def _finish(self, lease: Lease, outcome: Outcome) -> Verdict:
        record = self.of_lease(lease)
        if record is None or record.lease is None:
            known = self.records.get(lease.job_id)
            repeated = known is not None and known.ended_by.get(lease.fence) is type(outcome)
            return Verdict.DONE if repeated else Verdict.LOST
        active = record.lease
        record.ended_by[active.fence] = type(outcome)
        self.count(record, "run_us", by=self.now - active.started_us)
        match outcome:
            case Completed(result):
                self.end(record, JobState.COMPLETED, None)
                record.completed_by, record.result, record.completed_under = active.fence, result, active
                self.count(record, "completed")
            case Retried(delay, failure):
                self.record_attempt(record, active, "retried", failure)
                self._later(record, delay)
                self.count(record, "retried")
            case Snoozed(delay):
                self.record_attempt(record, active, "snoozed", None)
                record.counters = after_return(record.counters)
                self._later(record, delay)
            case Failed(failure):
                self.record_attempt(record, active, "failed", failure)
                self.fail(record, failure.message)
            case Cancelled(reason):
                self.record_attempt(record, active, "cancelled", None)
                self.set_cancelled(record, reason)
            case Lost(failure):
                self.lose(record, active, failure, alone=True)
            case _:
                assert_never(outcome)
        return Verdict.DONE

    def _later(self, record: ReferenceJob, delay: timedelta) -> None:
        """Make the job due again after `delay`, unless its cancellation was requested."""
        if record.cancel_reason is not None:
            self.set_cancelled(record, record.cancel_reason)
            return
        record.leave(JobState.SCHEDULED)
        record.retrying = True
        record.due_at(self.now + span_micros(delay))

    def release(self, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        """Release jobs; they are ready again at their old turn."""
        verdicts = [self._release(lease, started=started) for lease in leases]
        self.settle_children()
        return verdicts

    def _release(self, lease: Lease, *, started: bool) -> Verdict:
        record = self.of_lease(lease)
        if record is None or record.lease is None:
            return Verdict.LOST
        self.record_attempt(record, record.lease, "released", None)
        decision = BudgetDecision(after_return(record.counters), None)
        if started:
            decision = after_interruption(record.counters, max_attempts=record.new.max_attempts)
        self.settle(record, decision)
        return Verdict.DONE

    def unacknowledged_leases(self, worker_id: str, after: int) -> list[Lease]:
        """List the leases of a worker under fences larger than `after`."""
        held = [
            (record, active) for record, active in self.held() if active.worker_id == worker_id and active.fence > after
        ]
        return [Lease(record.new.id, record.seq, active.fence) for record, active in held]

    def progress(self, lease: Lease, percent: float | None, note: str | None) -> Verdict:
        """Record the progress of an attempt."""
        record = self.of_lease(lease)
        if record is None or record.lease is None:
            return Verdict.LOST
        active = record.lease
        active.percent = active.percent if percent is None else percent
        active.note = active.note if note is None else note
        return Verdict.DONE

    def extend(self, lease: Lease, duration: timedelta) -> Verdict:
        """Extend one lease to `duration` from now, if that is later than its expiry; an expired one is revived."""
        record = self.of_lease(lease)
        if record is None or record.lease is None:
            return Verdict.LOST
        record.lease.expires_us = max(record.lease.expires_us, self.now + span_micros(duration))
        return Verdict.DONE

    def extend_all(self, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases to `duration` from now; return which are lost and which have a cancel request."""
        lost = [lease for lease in leases if self.extend(lease, duration) is Verdict.LOST]
        for record, active in self.held():
            if Lease(job_id=record.new.id, seq=record.seq, fence=active.fence) in leases:
                active.duration_us = span_micros(duration)
        asked = [lease for lease in leases if (held := self.of_lease(lease)) and held.cancel_reason is not None]
        return Extension(lost=lost, cancel_asked=asked)

    def cancel_asked(self, worker_id: str) -> list[Lease]:
        """Return the leases of a worker with a cancel request."""
        return [
            Lease(job_id=record.new.id, seq=record.seq, fence=active.fence)
            for record, active in self.held()
            if active.worker_id == worker_id and record.cancel_reason is not None
        ]

    def verify(self, lease: Lease) -> Standing:
        """Return the standing of a lease."""
        if self.of_lease(lease) is not None:
            return Standing.HELD
        record = self.records.get(lease.job_id)
        completed = record is not None and record.completed_by == lease.fence
        return Standing.COMPLETED if completed else Standing.LOST


def _unique(job: NewJob) -> Unique | None:
    return None if job.conditions is None else job.conditions.unique
