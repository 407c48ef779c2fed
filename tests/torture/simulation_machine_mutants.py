"""Deliberate bugs in what a worker decides."""

from __future__ import annotations

from typing import Any

from tests.torture.simulation_planting import Mutants, Patch

from holdfast.model.job import Lease
from holdfast.runtime.reachability import Access
from holdfast.store.values import Verdict
from holdfast.worker.claim_pacing import Claims
from holdfast.worker.finish_buffer import Finishes
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.in_flight import InFlight
from holdfast.worker.machine import Machine
from holdfast.worker.maintenance import Maintenance
from holdfast.worker.release_buffer import Releases

MUTANTS = Mutants()


@MUTANTS.common
def access_is_never_broken(patch: Patch) -> None:
    def nothing(access: Access) -> None:
        pass

    def succeeded(access: Access, now: float) -> None:
        access._began = now if access._began is None else access._began
        access._last = now

    patch.setattr(Access, "failed", nothing)
    patch.setattr(Access, "succeeded", succeeded)


@MUTANTS.common
def buffered_finishes_are_not_extended(patch: Patch) -> None:
    real = InFlight.ended

    def ended(jobs: InFlight, now: float, job: Any, outcome: Any) -> bool:
        answer = real(jobs, now, job, outcome)
        if job.seq in jobs.finishes.buffer:
            jobs.holdings.drop(job.seq)
        return answer

    patch.setattr(InFlight, "ended", ended)


@MUTANTS.rare
def prefetched_jobs_are_not_extended(patch: Patch) -> None:
    real_init, real_due = InFlight.__init__, HeldLeases.due
    waiting: dict[int, InFlight] = {}

    def init(jobs: InFlight, settings: Any) -> None:
        real_init(jobs, settings)
        waiting[id(jobs.holdings)] = jobs

    def due(holdings: HeldLeases, now: float) -> list[Lease]:
        idle = {job.seq for job in waiting[id(holdings)].prefetched}
        return [lease for lease in real_due(holdings, now) if lease.seq not in idle]

    patch.setattr(InFlight, "__init__", init)
    patch.setattr(HeldLeases, "due", due)


@MUTANTS.common
def leases_are_extended_after_they_end(patch: Patch) -> None:
    real = HeldLeases.__init__

    def init(holdings: HeldLeases, *, lease: float, extend_at: float) -> None:
        real(holdings, lease=lease, extend_at=extend_at * 3)

    patch.setattr(HeldLeases, "__init__", init)


@MUTANTS.common
def an_unanswered_flush_counts_as_answered(patch: Patch) -> None:
    def flush_failed(machine: Machine, now: float, finishes: Any) -> None:
        machine.flushed(now, finishes, [Verdict.DONE] * len(finishes))

    patch.setattr(Machine, "flush_failed", flush_failed)


@MUTANTS.common
def an_unanswered_finish_is_run_anew(patch: Patch) -> None:
    def flush_failed(machine: Machine, now: float, finishes: Any) -> None:
        held = machine.holdings.jobs
        machine.jobs.prefetched.extend([held[seq] for seq in machine.jobs.finishes.answered() if seq in held])
        machine._maintenance.access.failed()

    patch.setattr(Machine, "flush_failed", flush_failed)


@MUTANTS.common
def a_stopping_worker_forgets_what_it_has_not_begun(patch: Patch) -> None:
    def forget(jobs: InFlight) -> None:
        for job in jobs.prefetched:
            jobs.holdings.drop(job.seq)
        jobs.prefetched.clear()

    patch.setattr(InFlight, "release_prefetched", forget)


@MUTANTS.rare
def a_release_that_failed_is_forgotten(patch: Patch) -> None:
    def release_failed(machine: Machine, now: float, leases: Any) -> None:
        machine.released(now, leases)

    patch.setattr(Machine, "release_failed", release_failed)


@MUTANTS.common
def a_worker_ends_though_work_is_left(patch: Patch) -> None:
    real = Machine.emptiness
    patch.setattr(Machine, "emptiness", lambda machine, now, is_empty: real(machine, now, True))


@MUTANTS.rare
def the_slot_of_an_aborted_handler_counts_as_free(patch: Patch) -> None:
    def to_ghosts(jobs: InFlight, seq: int) -> None:
        job = jobs.running.pop(seq)
        jobs.ghosts[seq, job.fence] = job
        jobs._concurrency += 1

    patch.setattr(InFlight, "_to_ghosts", to_ghosts)


@MUTANTS.common
def a_job_that_was_settled_is_settled_again(patch: Patch) -> None:
    """What `ended(None)` means in a running worker is taken for a broken handler: the job is begun again."""

    def again(jobs: InFlight, job: Any) -> None:
        jobs.prefetched.append(job)

    patch.setattr(InFlight, "_ended_unwritten", again)


@MUTANTS.common
def what_was_not_begun_is_given_back_as_begun(patch: Patch) -> None:
    def release(jobs: InFlight) -> None:
        for job in jobs.prefetched:
            jobs.releases.add(job.lease, started=True)
        jobs.prefetched.clear()

    patch.setattr(InFlight, "release_prefetched", release)


@MUTANTS.common
def a_job_claimed_anew_does_not_displace_its_former_self(patch: Patch) -> None:
    patch.setattr(InFlight, "_supersede", lambda jobs, seq: None)


@MUTANTS.rare
def an_extension_counts_for_later_claims_too(patch: Patch) -> None:
    real = HeldLeases.extended

    def extended(holdings: HeldLeases, leases: Any, sent_at: float) -> None:
        leases = list(leases)
        real(holdings, leases, sent_at)
        for lease in leases:
            for fence in holdings.sent:
                if fence > lease.fence:
                    holdings.sent[fence] = sent_at + 1e9

    patch.setattr(HeldLeases, "extended", extended)


@MUTANTS.rarest(first=1550)
def a_lease_called_lost_is_given_up_though_its_finish_was_sent(patch: Patch) -> None:
    patch.setattr(Finishes, "is_sent", lambda finishes, seq: False)


@MUTANTS.common
def a_running_worker_abandons_what_it_cannot_write(patch: Patch) -> None:
    real = Machine.flush_failed

    def flush_failed(machine: Machine, now: float, finishes: Any) -> None:
        real(machine, now, finishes)
        machine.jobs.abandon(machine.jobs.finishes.abandon())

    patch.setattr(Machine, "flush_failed", flush_failed)


@MUTANTS.stalling
def a_claim_that_failed_stays_in_flight(patch: Patch) -> None:
    def failed(claims: Claims, now: float) -> None:
        claims._hungry = True

    patch.setattr(Claims, "failed", failed)


@MUTANTS.stalling
def maintenance_that_failed_stays_in_flight(patch: Patch) -> None:
    patch.setattr(Maintenance, "failed", lambda maintenance, now: None)


@MUTANTS.stalling
def a_flush_that_failed_stays_in_flight(patch: Patch) -> None:
    def failed(finishes: Finishes, now: float) -> None:
        finishes.unknown = finishes.flushing | finishes.unknown
        finishes.flushing = {}

    patch.setattr(Finishes, "failed", failed)


@MUTANTS.stalling
def a_release_call_is_counted_twice(patch: Patch) -> None:
    real = Releases.batch

    def batch(releases: Releases, now: float) -> Any:
        answer = real(releases, now)
        releases._calls += bool(answer[0] or answer[1])
        return answer

    patch.setattr(Releases, "batch", batch)


@MUTANTS.stalling
def nobody_rescues(patch: Patch) -> None:
    patch.setattr(Access, "began", lambda access, now: None)
