"""Deliberate bugs in the reference model, as a store might have them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from tests.torture.simulation_planting import Mutants, Patch

from holdfast.model.budget import Counters
from holdfast.model.job import JobState, Lease
from holdfast.model.outcome import Snoozed
from holdfast.store.values import Extension, Finish, Outstanding, Promotion, Verdict
from holdfast.testing.reference import Reference
from holdfast.testing.reference.maintenance import ReferenceMaintenance as ModelMaintenance
from holdfast.testing.reference.records import ReferenceState

MUTANTS = Mutants()


def current(model: Reference, lease: Lease) -> Lease:
    """Return the lease under whatever fence the job is held at present."""
    record = model.records.get(lease.job_id)
    return lease if record is None or record.lease is None else Lease(lease.job_id, lease.seq, record.lease.fence)


@MUTANTS.common
def finish_does_not_compare_fences(patch: Patch) -> None:
    real = Reference.finish
    patch.setattr(
        Reference,
        "finish",
        lambda model, finishes: real(model, [Finish(current(model, each.lease), each.outcome) for each in finishes]),
    )


@MUTANTS.common
def extend_does_not_compare_fences(patch: Patch) -> None:
    real = Reference.extend_all

    def extend_all(model: Reference, leases: list[Lease], duration: timedelta) -> Extension:
        answer = real(model, [current(model, lease) for lease in leases], duration)
        gone = {lease.seq for lease in answer.lost}
        return Extension(lost=[lease for lease in leases if lease.seq in gone], cancel_asked=answer.cancel_asked)

    patch.setattr(Reference, "extend_all", extend_all)


@MUTANTS.rare
def release_does_not_compare_fences(patch: Patch) -> None:
    real = Reference.release
    patch.setattr(
        Reference,
        "release",
        lambda model, leases, *, started: real(model, [current(model, lease) for lease in leases], started=started),
    )


@MUTANTS.common
def rescue_does_not_look_at_the_expiry(patch: Patch) -> None:
    real = Reference.rescue

    def rescue(model: Reference, unbroken: timedelta | None, limit: int) -> Any:
        for _, hold in model.held():
            hold.expires_us = min(hold.expires_us, model.now)
        return real(model, unbroken, limit)

    patch.setattr(Reference, "rescue", rescue)


@MUTANTS.common
def rescue_does_not_ask_for_unbroken_access(patch: Patch) -> None:
    real = Reference.rescue
    patch.setattr(Reference, "rescue", lambda model, unbroken, limit: real(model, None, limit))


@MUTANTS.common
def claim_takes_what_is_held(patch: Patch) -> None:
    real = Reference._claimable

    def claimable(model: Reference, request: Any) -> Any:
        taken = [record for record, hold in model.held() if hold.worker_id != request.worker_id]
        return real(model, request) + taken[:1]

    patch.setattr(Reference, "_claimable", claimable)


@MUTANTS.common
def claim_takes_the_newest_first(patch: Patch) -> None:
    real = Reference._claimable
    patch.setattr(Reference, "_claimable", lambda model, request: real(model, request)[::-1])


@MUTANTS.common
def claim_takes_from_a_paused_queue(patch: Patch) -> None:
    real = Reference._claimable

    def claimable(model: Reference, request: Any) -> Any:
        paused, model.paused = model.paused, set()
        try:
            return real(model, request)
        finally:
            model.paused = paused

    patch.setattr(Reference, "_claimable", claimable)


@MUTANTS.common
def a_fence_is_given_twice(patch: Patch) -> None:
    real = Reference.claim

    def claim(model: Reference, request: Any) -> Any:
        jobs = real(model, request)
        model.last_fence -= bool(jobs) and model.last_fence % 5 == 0
        return jobs

    patch.setattr(Reference, "claim", claim)


@MUTANTS.common
def the_attempt_is_counted_at_its_end(patch: Patch) -> None:
    real_claim, real_finish = Reference.claim, Reference._finish

    def counted(counters: Counters, by: int) -> Counters:
        return msgspec.structs.replace(counters, attempt=counters.attempt + by)

    def claim(model: Reference, request: Any) -> Any:
        jobs = real_claim(model, request)
        for job in jobs:
            record = model.records[job.id]
            record.counters = counted(record.counters, -1)
        return jobs

    def finish(model: Reference, lease: Lease, outcome: Any) -> Verdict:
        record = model.of_lease(lease)
        if record is not None:
            record.counters = counted(record.counters, 1)
        return real_finish(model, lease, outcome)

    patch.setattr(Reference, "claim", claim)
    patch.setattr(Reference, "_finish", finish)


@MUTANTS.common
def a_snooze_costs_an_attempt(patch: Patch) -> None:
    real = Reference._finish

    def finish(model: Reference, lease: Lease, outcome: Any) -> Verdict:
        record = model.of_lease(lease)
        verdict = real(model, lease, outcome)
        if record is not None and isinstance(outcome, Snoozed):
            counters = record.counters
            record.counters = msgspec.structs.replace(counters, excused=counters.excused - 1)
        return verdict

    patch.setattr(Reference, "_finish", finish)


@MUTANTS.common
def the_repeat_of_a_finish_is_called_lost(patch: Patch) -> None:
    real = Reference._finish

    def finish(model: Reference, lease: Lease, outcome: Any) -> Verdict:
        return real(model, lease, outcome) if model.of_lease(lease) is not None else Verdict.LOST

    patch.setattr(Reference, "_finish", finish)


@MUTANTS.common
def promote_moves_running_jobs_too(patch: Patch) -> None:
    real = Reference.promote

    def promote(model: Reference, limit: int) -> Promotion:
        promotion = real(model, limit)
        for record, _ in model.held():
            if record.counters.attempt > 1:
                record.leave(JobState.READY)
        return promotion

    patch.setattr(Reference, "promote", promote)


@MUTANTS.common
def promote_does_not_look_at_the_clock(patch: Patch) -> None:
    def promote(model: Reference, limit: int) -> Promotion:
        waiting = [record for record in model.records.values() if record.state is JobState.SCHEDULED][:limit]
        for record in waiting:
            record.state = JobState.READY
        return Promotion(moved=len(waiting), next_due=None)

    patch.setattr(Reference, "promote", promote)


@MUTANTS.common
def outstanding_does_not_count_what_runs(patch: Patch) -> None:
    real = Reference.outstanding

    def outstanding(model: Reference, tasks: Any, queues: Any) -> Outstanding:
        return msgspec.structs.replace(real(model, tasks, queues), running=0)

    patch.setattr(Reference, "outstanding", outstanding)


@MUTANTS.common
def a_repeated_enqueue_makes_the_job_anew(patch: Patch) -> None:
    real = Reference._enqueue

    def enqueue(model: Reference, job: Any, size: int) -> Any:
        known = model.records.pop(job.id, None)
        is_new = real(model, job, size)
        return is_new and known is None

    patch.setattr(Reference, "_enqueue", enqueue)


@MUTANTS.common
def a_loss_is_always_excused(patch: Patch) -> None:
    real = ModelMaintenance.lose
    patch.setattr(
        ModelMaintenance,
        "lose",
        lambda model, record, hold, failure, *, alone: real(model, record, hold, failure, alone=False),
    )


@MUTANTS.rare
def a_rescued_job_runs_though_it_is_to_be_cancelled(patch: Patch) -> None:
    real = ModelMaintenance.settle

    def settle(model: ModelMaintenance, record: Any, decision: Any) -> None:
        record.cancel_reason = None
        real(model, record, decision)

    patch.setattr(ModelMaintenance, "settle", settle)


@MUTANTS.common
def the_jobs_of_a_line_are_all_ready(patch: Patch) -> None:
    patch.setattr(ReferenceState, "of_order_key", lambda model, scope: [])


@MUTANTS.stalling
def the_next_of_a_line_is_not_brought_up(patch: Patch) -> None:
    def end(model: ModelMaintenance, record: Any, state: JobState, reason: str | None) -> None:
        record.end(state, model.now, reason)

    patch.setattr(ModelMaintenance, "end", end)
