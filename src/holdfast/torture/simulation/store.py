"""The store of the simulation: the reference model, with effects beside it and a judge over every answer.

Each method is one atomic step, done at the instant when the request arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import JobState, Lease, LeasedJob, NewJob
from holdfast.model.outcome import Completed, Outcome
from holdfast.store.values import (
    ClaimRequest,
    Extension,
    Finish,
    Outstanding,
    Promotion,
    Rescued,
    Standing,
    Verdict,
    WorkerBeat,
)
from holdfast.testing.reference import Reference
from holdfast.torture.simulation.clock import StoreClock
from holdfast.torture.simulation.judge import Judge
from holdfast.torture.simulation.wire import Weather
from holdfast.torture.simulation.witness import Witness
from holdfast.torture.simulation.world import SECOND, World

_LATE = 4  # a rescue that was on its way for more than this part of a lease takes nothing: see `store.jobs`


class Store:
    """The verbs, as the simulated processes call them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = StoreClock(world)
        self.weather = Weather()
        self.model = Reference(self.clock)
        self.judge = Judge(world, self.model, self.clock, weather=self.weather)

    def enqueue(self, who: str, jobs: Sequence[NewJob]) -> list[bool]:
        """Put jobs in."""
        answers = self.model.enqueue(jobs)
        self._world.note(who, "enqueue", tuple(job.id for job in jobs), repr(answers))
        self.judge.enqueued(jobs, answers)
        return answers

    def claim(self, request: ClaimRequest) -> list[LeasedJob]:
        """Lease jobs."""
        jobs = self.model.claim(request)
        if jobs:
            fence = f"fence {jobs[0].fence}"
            self._world.note(request.worker_id, "claim", tuple(job.id for job in jobs), fence)
        self.judge.claimed(request, jobs)
        return jobs

    def has_ready(self) -> bool:
        """Tell whether a claim may find anything; if not it only reads."""
        return any(record.state is JobState.READY for record in self.model.records.values())

    def finish(self, who: str, finishes: Sequence[Finish]) -> list[Verdict]:
        """Write ends of attempts."""
        verdicts = self.model.finish(finishes)
        for finish, verdict in zip(finishes, verdicts, strict=True):
            self._note(who, f"finish {_named(finish.outcome)}", finish.lease, verdict)
        self.judge.finished(finishes, verdicts)
        return verdicts

    def release(self, who: str, leases: Sequence[Lease], *, started: bool) -> list[Verdict]:
        """Give jobs back."""
        verdicts = self.model.release(leases, started=started)
        for lease, verdict in zip(leases, verdicts, strict=True):
            self._note(who, "release started" if started else "release unstarted", lease, verdict)
        self.judge.released(leases, verdicts, started=started)
        return verdicts

    def extend(self, who: str, leases: Sequence[Lease], duration: timedelta) -> Extension:
        """Extend leases."""
        extension = self.model.extend_all(leases, duration)
        lost = {(lease.seq, lease.fence) for lease in extension.lost}
        for lease in leases:
            self._note(who, "extend", lease, Verdict.LOST if (lease.seq, lease.fence) in lost else Verdict.DONE)
        self.judge.extended(leases, extension.lost, duration)
        return extension

    def commit(self, who: str, lease: Lease) -> Verdict:
        """Commit an effect together with the completion; neither if the lease is lost."""
        (verdict,) = self.model.finish([Finish(lease, Completed())])
        self._note(who, "commit", lease, verdict)
        self.judge.committed(lease, verdict)
        return verdict

    def verify(self, who: str, lease: Lease) -> Standing:
        """Tell how a lease stands."""
        standing = self.model.verify(lease)
        self._world.note(who, "verify", (lease.job_id,), f"fence {lease.fence} {standing}")
        return standing

    def promote(self, who: str, limit: int) -> Promotion:
        """Move due jobs to ready."""
        promotion = self.model.promote(limit)
        if promotion.moved:
            self._world.note(who, "promote", (), str(promotion.moved))
        return promotion

    def rescue(self, rescuer: Witness, unbroken: timedelta, limit: int, *, waited: float) -> list[Rescued]:
        """Take expired leases for a worker; none if the request itself took long, as every backend sees to."""
        if _LATE * waited * SECOND > rescuer.lease:
            return []
        return self._rescued(rescuer.id, rescuer, self.model.rescue(unbroken, limit))

    def rescue_now(self, who: str) -> list[Rescued]:
        """Take every expired lease by a person's word."""
        return self._rescued(who, None, self.model.rescue(None, 1000))

    def _rescued(self, who: str, rescuer: Witness | None, rescued: list[Rescued]) -> list[Rescued]:
        for each in rescued:
            self._world.note(who, "rescue", (each.job_id,), f"from {each.worker_id}: {each.state}")
        self.judge.rescued(rescuer, rescued)
        return rescued

    def rescue_worker(self, who: str, worker_id: str, limit: int) -> list[Rescued]:
        """Take the leases of a dead worker."""
        rescued = self.model.rescue_worker(worker_id, "it has ended", limit)
        for each in rescued:
            self._world.note(who, "rescue worker", (each.job_id,), f"from {worker_id}: {each.state}")
        self.judge.buried(worker_id, rescued)
        return rescued

    def outstanding(self, request: ClaimRequest) -> Outstanding:
        """Count what is left."""
        left = self.model.outstanding(request.tasks, request.queues)
        self.judge.looked(request, left.is_empty)
        return left

    def cancel_asked(self, worker_id: str) -> list[Lease]:
        """Return the leases whose jobs somebody asked to cancel."""
        return self.model.cancel_asked(worker_id)

    def beat(self, beat: WorkerBeat) -> None:
        """Note that a worker lives."""
        self.model.beat(beat)

    # --- a person's word --------------------------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        """Cancel a job, or ask its worker to."""
        answer = self.model.cancel(job_id, "somebody asked")
        self._world.note("operator", "cancel", (job_id,), answer)
        self.judge.cancelled(job_id)

    def retry(self, job_id: str) -> None:
        """Send a failed or cancelled job back."""
        answer = self.model.retry(job_id)
        self._world.note("operator", "retry", (job_id,), repr(answer))
        self.judge.retried(job_id, answer)

    def reset(self, job_id: str) -> None:
        """Take a lease away."""
        answer = self.model.reset(job_id)
        self._world.note("operator", "reset", (job_id,), repr(answer))
        self.judge.reset(job_id, answer)

    def pause(self, queue: str) -> None:
        """Pause a queue."""
        self.model.pause(queue)
        self._world.note("operator", "pause", (), queue)
        self.judge.paused(queue, True)

    def resume(self, queue: str) -> None:
        """Resume a queue."""
        self.model.resume(queue)
        self._world.note("operator", "resume", (), queue)
        self.judge.paused(queue, False)

    def _note(self, who: str, what: str, lease: Lease, verdict: Verdict) -> None:
        self._world.note(who, what, (lease.job_id,), f"fence {lease.fence} {verdict}")


def _named(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()
