"""The simulated store: the reference model, with an effect table and a judge over every reply.

Each method is one atomic step, done when the request arrives. A read is given the time as of which it is answered,
which may be in the past; a write is always applied to the present.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import JobState, Lease, LeasedJob, NewJob
from holdfast.model.outcome import Completed, Outcome
from holdfast.store.values import (
    Cancellation,
    ClaimRequest,
    Enqueued,
    Extension,
    Finish,
    Outstanding,
    Promotion,
    Rescued,
    Standing,
    Verdict,
    WorkerHeartbeat,
)
from holdfast.testing.reference import Reference
from holdfast.torture.simulation.clock import StoreClock
from holdfast.torture.simulation.judge import Judge
from holdfast.torture.simulation.network import StoreStatus
from holdfast.torture.simulation.observer import WorkerTruth
from holdfast.torture.simulation.stale_reads import Past
from holdfast.torture.simulation.world import SECOND, SimulatedWorld

_LATE = 4  # a rescue in flight for longer than this part of a lease takes nothing: see `store.jobs`


class Store:
    """The verbs, as the simulated processes call them."""

    def __init__(self, world: SimulatedWorld, *, oldest: int = 0, until_empty: bool = True) -> None:
        """`oldest`: the maximum age of a read in microseconds; `until_empty`: whether any worker reads what is left."""
        self._world = world
        self.clock = StoreClock(world)
        self.status = StoreStatus()
        self.model = Reference(self.clock)
        self.judge = Judge(world, self.model, self.clock, status=self.status)
        self._oldest = oldest
        self._cancel_requested_at: int | None = None
        self._past = Past(world, self.model, self.judge.docket, self.clock, keeps=oldest > 0, keeps_cases=until_empty)

    def _read(self, actor: str, what: str, as_of: int) -> Reference:
        """Return the model as of a time, for a read."""
        age = self._world.now - as_of
        if age > 0:
            self._world.note(actor, "fault: stale read", (), f"{what}, {age / SECOND:.3f} s old")
        return self._past.model(as_of)

    def enqueue(self, actor: str, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs."""
        answers = self.model.enqueue(jobs)
        self._world.note(actor, "enqueue", tuple(job.id for job in jobs), repr(answers))
        self.judge.enqueued(jobs, answers)
        self._past.keep()
        return answers

    def claim(self, request: ClaimRequest) -> list[LeasedJob]:
        """Lease jobs."""
        jobs = self.model.claim(request)
        if jobs:
            fence = f"fence {jobs[0].fence}"
            self._world.note(request.worker_id, "claim", tuple(job.id for job in jobs), fence)
        self.judge.claimed(request, jobs)
        if jobs:
            self._past.keep()
        return jobs

    def has_ready(self) -> bool:
        """Return whether a claim may find anything; if not, it only reads."""
        return any(record.state is JobState.READY for record in self.model.records.values())

    def finish(self, actor: str, finishes: Sequence[Finish]) -> list[Verdict]:
        """Write outcomes of attempts."""
        verdicts = self.model.finish(finishes)
        for finish, verdict in zip(finishes, verdicts, strict=True):
            self._note(actor, f"finish {_named(finish.outcome)}", finish.lease, verdict)
        self.judge.finished(finishes, verdicts)
        self._past.keep()
        return verdicts

    def release(self, actor: str, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        """Release jobs."""
        verdicts = self.model.release(leases, started=started)
        for lease, verdict in zip(leases, verdicts, strict=True):
            self._note(actor, "release started" if started else "release unstarted", lease, verdict)
        self.judge.released(leases, verdicts, started=started)
        self._past.keep()
        return verdicts

    def extend(self, actor: str, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases."""
        extension = self.model.extend_all(leases, duration)
        lost = {(lease.seq, lease.fence) for lease in extension.lost}
        for lease in leases:
            self._note(actor, "extend", lease, Verdict.LOST if (lease.seq, lease.fence) in lost else Verdict.DONE)
        self.judge.extended(leases, extension.lost, duration)
        return extension

    def commit(self, actor: str, lease: Lease) -> Verdict:
        """Commit an effect together with the completion; neither if the lease is lost."""
        (verdict,) = self.model.finish([Finish(lease, Completed())])
        self._note(actor, "commit", lease, verdict)
        self.judge.committed(lease, verdict)
        self._past.keep()
        return verdict

    def verify(self, actor: str, lease: Lease, *, as_of: int) -> Standing:
        """Return the standing of a lease."""
        standing = self._read(actor, "verify", as_of).verify(lease)
        self._world.note(actor, "verify", (lease.job_id,), f"fence {lease.fence} {standing}")
        return standing

    def promote(self, actor: str, limit: int) -> Promotion:
        """Move due jobs to ready."""
        promotion = self.model.promote(limit)
        if promotion.moved:
            self._world.note(actor, "promote", (), str(promotion.moved))
            self._past.keep()
        return promotion

    def rescue(self, rescuer: WorkerTruth, unbroken: timedelta, limit: int, *, waited: float) -> list[Rescued]:
        """Take expired leases for a worker; none if the request itself was slow, as in every backend."""
        if _LATE * waited * SECOND > rescuer.lease:
            return []
        return self._rescued(rescuer.id, rescuer, self.model.rescue(unbroken, limit))

    def rescue_now(self, actor: str) -> list[Rescued]:
        """Operator action: take every expired lease."""
        return self._rescued(actor, None, self.model.rescue(None, 1000))

    def _rescued(self, actor: str, rescuer: WorkerTruth | None, rescued: list[Rescued]) -> list[Rescued]:
        for each in rescued:
            self._world.note(actor, "rescue", (each.job_id,), f"from {each.worker_id}: {each.state}")
        self.judge.rescued(rescuer, rescued)
        if rescued:
            self._past.keep()
        return rescued

    def rescue_worker(self, actor: str, worker_id: str, limit: int) -> list[Rescued]:
        """Take the leases of a dead worker."""
        rescued = self.model.rescue_worker(worker_id, "it has ended", limit)
        for each in rescued:
            self._world.note(actor, "rescue worker", (each.job_id,), f"from {worker_id}: {each.state}")
        self.judge.worker_rescued(worker_id, rescued)
        if rescued:
            self._past.keep()
        return rescued

    def outstanding(self, request: ClaimRequest, *, as_of: int, claimed_at: int) -> Outstanding:
        """Count what is left, for a worker that knows of its claims up to a time."""
        left = self._read(request.worker_id, "outstanding", as_of).outstanding(request.tasks, request.queues)
        then = self._past.docket(as_of)
        self.judge.emptiness_read(request, left.is_empty, then=then, as_of=as_of, claimed_at=claimed_at)
        return left

    def unacknowledged_leases(self, worker_id: str, after: int, *, as_of: int) -> list[Lease]:
        """Return the leases of a worker under larger fences than it knows."""
        return self._read(worker_id, "unacknowledged_leases", as_of).unacknowledged_leases(worker_id, after)

    def cancel_asked(self, worker_id: str, *, as_of: int) -> list[Lease]:
        """Return the leases with a cancel request."""
        return self._read(worker_id, "cancel requests", as_of).cancel_asked(worker_id)

    def has_cancel_requests(self, worker_id: str) -> bool:
        """Return whether a read of cancel requests can show anything, so that not every one has to be simulated."""
        recently = (
            self._cancel_requested_at is not None and self._world.now - self._cancel_requested_at <= 2 * self._oldest
        )
        return recently or bool(self.model.cancel_asked(worker_id))

    def heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        """Record a worker's heartbeat."""
        self.model.heartbeat(heartbeat)

    # --- operator actions -------------------------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        """Cancel a job, or request it of its worker."""
        answer = self.model.cancel(job_id, "requested")
        self._world.note("operator", "cancel", (job_id,), answer)
        self.judge.cancelled(job_id)
        if answer is Cancellation.ASKED:
            self._cancel_requested_at = self._world.now
        self._past.keep()

    def retry(self, job_id: str) -> None:
        """Retry a failed or cancelled job."""
        answer = self.model.retry(job_id)
        self._world.note("operator", "retry", (job_id,), repr(answer))
        self.judge.retried(job_id, answer)
        self._past.keep()

    def reset(self, job_id: str) -> None:
        """Reset a lease."""
        answer = self.model.reset(job_id)
        self._world.note("operator", "reset", (job_id,), repr(answer))
        self.judge.reset(job_id, answer)
        self._past.keep()

    def pause(self, queue: str) -> None:
        """Pause a queue."""
        self.model.pause(queue)
        self._world.note("operator", "pause", (), queue)
        self.judge.paused(queue, True)
        self._past.keep()

    def resume(self, queue: str) -> None:
        """Resume a queue."""
        self.model.resume(queue)
        self._world.note("operator", "resume", (), queue)
        self.judge.paused(queue, False)
        self._past.keep()

    def set_clock(self, by: int) -> None:
        """Step the store's clock by microseconds."""
        self.clock.step(by)
        self._past.keep()

    def _note(self, actor: str, what: str, lease: Lease, verdict: Verdict) -> None:
        self._world.note(actor, what, (lease.job_id,), f"fence {lease.fence} {verdict}")


def _named(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()
