"""The judge: checks every request and reply of the store against the guarantees. It trusts neither worker nor model.

It keeps its own case for each job, built only from calls, replies and the store's clock, and raises `Violated` at the
first reply that breaks a rule. The rules, by the names under which they are reported:

- `one holder`: no job is claimed while it is leased, and never again once it has ended (except after a retry).
- `fence`: fences grow with every claim; a write is accepted if and only if its fence is that of the current lease.
- `attempts`: claims are numbered without a gap, charged attempts never exceed `max_attempts`, none is cut short.
- `order key`: of the jobs of one order key only the head, the oldest that has not ended, is ever claimed.
- `turn`: claims take due jobs in order of turn, then seq, skip none, and take none of a paused queue.
- `effect`: at most one effect of a job, and exactly one when it is completed in a transaction; none otherwise.
- `rescue`: only expired leases are taken, none within half a lease after an outage, and none from a healthy worker.
- `cancel`: a worker cancels only on a request made since the claim, or because its handler gave up.
- `loss`: a lost lease costs a job what the lost-worker rule says.
- `begin`: a handler starts once per fence, never more handlers run than there are slots, and a job released as not
  started has not started.
- `until empty`: a worker that exits because nothing is left was right when it read that, read it after its last claim,
  and has since held no job that is left.
- `leaving`: a worker that exits leaves no lease behind, unless the store was unavailable.
- `tally`: the totals of a worker that exits count every job that it received, once.
- `recovery`: after the faults, the jobs of a dead worker are freed within a bound.
- `kept`: what was accepted exists, what was refused does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from holdfast.model.instants import span_micros
from holdfast.model.job import JobState, Lease, LeasedJob, NewJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Lost, Outcome, Retried, Snoozed
from holdfast.model.totals import Totals
from holdfast.model.turn import turn_of
from holdfast.store.values import ClaimRequest, Enqueued, Finish, Rescued, Verdict
from holdfast.testing.reference import Reference
from holdfast.torture.simulation.clock import StoreClock
from holdfast.torture.simulation.network import StoreStatus
from holdfast.torture.simulation.observer import WorkerTruth
from holdfast.torture.simulation.oracle import Case, Docket
from holdfast.torture.simulation.world import SECOND, SimulatedWorld, Violated

_SLACK = 5 * SECOND  # for refilling seats, and for calls


class Judge:
    """Watches every verb of the store."""

    def __init__(self, world: SimulatedWorld, model: Reference, clock: StoreClock, *, status: StoreStatus) -> None:
        self._world = world
        self._clock = clock
        self._model = model
        self._status = status
        self.docket = Docket(clock)
        self.cases = self.docket.cases
        self.workers: dict[str, WorkerTruth] = {}
        self._fence = 0
        self._places = 0
        self._paused = self.docket.paused

    # --- enqueue and claim -------------------------------------------------------------------------------------------

    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Check an enqueue."""
        for job, is_new in zip(jobs, answers, strict=True):
            if is_new == (job.id in self.cases):
                raise Violated("kept", f"an enqueue was answered {is_new}", job.id)
            if is_new:
                due = self._model.now + (0 if job.delay is None else span_micros(job.delay))
                self.cases[job.id] = Case(job, due, self._next_place(), came_at=self._world.now)

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def claimed(self, request: ClaimRequest, jobs: Sequence[LeasedJob]) -> None:
        """Check a claim."""
        now = self._model.now
        if jobs and jobs[0].fence <= self._fence:
            raise Violated("fence", f"a claim got fence {jobs[0].fence} after {self._fence}", jobs[0].id)
        if len(jobs) > request.limit:
            raise Violated("turn", f"a claim for {request.limit} took {len(jobs)}")
        for job in jobs:
            self._fence = job.fence
            case = self.cases[job.id]
            if case.fence is not None or case.state is not None:
                held = f"held by {case.worker}" if case.state is None else f"{case.state}"
                raise Violated("one holder", f"claimed by {request.worker_id} though it is {held}", job.id)
            self._check_turn(case, job)
            case.claim(request, job.fence, now, at=self._world.now)
            if job.attempt != case.claims:
                raise Violated("attempts", f"claim number {case.claims} has attempt {job.attempt}", job.id)
            if case.charged > job.max_attempts:
                raise Violated("attempts", f"{case.charged} attempts of {job.max_attempts} are used", job.id)
        self._check_skipped(request, jobs)

    def _check_turn(self, case: Case, job: LeasedJob) -> None:
        latest = self._clock.latest()
        if case.due > latest:
            raise Violated("turn", f"claimed {case.due - latest} microseconds before it is due", job.id)
        head = self.docket.head(case)
        if head is not case:
            raise Violated("order key", f"claimed although {head.id} comes first", job.id)
        if job.queue in self._paused:
            raise Violated("turn", f"claimed although queue {job.queue} is paused", job.id)
        if job.turn != turn_of(case.due, job.priority):
            raise Violated("turn", f"its turn is {turn_of(case.due, job.priority)}, not {job.turn}", job.id)

    def _check_skipped(self, request: ClaimRequest, jobs: Sequence[LeasedJob]) -> None:
        last = (0, 0)
        for job in jobs:
            if (job.turn, job.seq) < last:
                raise Violated("turn", "a claim is not in order of turn", job.id)
            last = (job.turn, job.seq)
        full = len(jobs) >= request.limit
        for record in self._model.records.values():
            if (
                record.state is JobState.READY
                and (not full or (record.turn_us, record.seq) < last)
                and (request.queues is None or record.new.queue in request.queues)
                and record.new.queue not in self._paused
            ):
                raise Violated("turn", "a claim has skipped it", record.new.id)

    # --- under a lease ----------------------------------------------------------------------------------------------

    def _under(self, lease: Lease, verdict: Verdict, what: str) -> Case | None:
        """Return the case if the write was accepted, after checking the verdict."""
        case = self.cases[lease.job_id]
        is_live = case.fence == lease.fence
        if is_live != (verdict is Verdict.DONE):
            held = f"held under fence {case.fence}" if case.fence is not None else "not leased"
            raise Violated("fence", f"{what} under fence {lease.fence} was answered {verdict}: it is {held}", case.id)
        return case if is_live else None

    def finished(self, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> None:
        """Check finishes."""
        for finish, verdict in zip(finishes, verdicts, strict=True):
            lease, outcome = finish.lease, finish.outcome
            if self.cases[lease.job_id].ended_by.get(lease.fence) is type(outcome):
                if verdict is not Verdict.DONE:
                    raise Violated("fence", "the repeat of a written finish was answered LOST", lease.job_id)
                continue
            case = self._under(lease, verdict, f"a finish ({type(outcome).__name__})")
            if case is not None:
                case.ended_by[lease.fence] = type(outcome)
                self._finish(case, lease, outcome)

    def _finish(self, case: Case, lease: Lease, outcome: Outcome) -> None:
        now = self._model.now
        match outcome:
            case Completed():
                if lease.fence not in case.returned:
                    raise Violated("effect", f"completed under fence {lease.fence}, whose handler did not", case.id)
                case.end(JobState.COMPLETED)
            case Retried(delay) | Snoozed(delay):
                case.excused += isinstance(outcome, Snoozed)
                if case.cancel_asked:
                    case.end(JobState.CANCELLED)
                else:
                    case.free()
                    case.due = now + span_micros(delay)
            case Failed():
                if case.charged < case.new.max_attempts:
                    raise Violated("attempts", f"failed after {case.charged} of {case.new.max_attempts}", case.id)
                case.end(JobState.FAILED)
            case Cancelled():
                if not case.cancel_asked and lease.fence not in case.gave_up:
                    raise Violated("cancel", "cancelled without a request of an operator or its handler", case.id)
                case.end(JobState.CANCELLED)
            case Lost():
                case.lose(alone=True)

    def released(self, leases: Sequence[Lease], verdicts: Sequence[Verdict], *, started: bool) -> None:
        """Check released leases."""
        for lease, verdict in zip(leases, verdicts, strict=True):
            case = self._under(lease, verdict, "a release")
            if started != (lease.fence in self.cases[lease.job_id].begun):
                raise Violated("begin", f"released as {'started' if started else 'not started'}", lease.job_id)
            if case is not None and started:
                case.interrupt()
            elif case is not None:
                case.release()

    def extended(self, leases: Sequence[Lease], lost: Iterable[Lease], duration: timedelta) -> None:
        """Check an extension."""
        stale = {(lease.seq, lease.fence) for lease in lost}
        span = span_micros(duration)
        for lease in leases:
            verdict = Verdict.LOST if (lease.seq, lease.fence) in stale else Verdict.DONE
            case = self._under(lease, verdict, "an extension")
            if case is not None:
                case.expires = max(case.expires, self._model.now + span)
                case.duration = span

    def committed(self, lease: Lease, verdict: Verdict) -> None:
        """Check a transaction with an effect and the completion."""
        case = self._under(lease, verdict, "a transaction's completion")
        if case is not None:
            case.ended_by[lease.fence] = Completed
            case.effects += 1
            case.end(JobState.COMPLETED)
            if case.effects > 1:
                raise Violated("effect", f"it has {case.effects} effects", case.id)

    def began(self, worker: WorkerTruth, job: LeasedJob, running: int) -> None:
        """Check the start of a handler."""
        case = self.cases[job.id]
        if job.fence in case.begun:
            raise Violated("begin", f"its handler started twice under fence {job.fence}", job.id)
        case.begun.add(job.fence)
        if running > worker.concurrency:
            raise Violated("begin", f"{running} handlers run in {worker.concurrency} slots of {worker.id}", job.id)

    # --- leases ended by others -------------------------------------------------------------------------------------

    def rescued(self, rescuer: WorkerTruth | None, rescued: Sequence[Rescued]) -> None:
        """Check leases taken from silent workers, by a worker or, with None, by an operator."""
        now = self._model.now
        alone = self._alone()
        for each in rescued:
            case = self.cases[each.job_id]
            if case.fence is None or case.expires > now:
                raise Violated("rescue", f"taken from {case.worker} although its lease has not expired", case.id)
            # One with a longer lease sees less: `docs/internals/simulation.md`, what it has found.
            if rescuer is not None and rescuer.lease <= case.duration:
                self._check_after_outage(case, rescuer)
                self._check_health(case, rescuer)
            case.lose(alone=case.id in alone)
            self._check_state(case, each.state)
        self._part({each.worker_id for each in rescued})

    def _alone(self) -> set[str]:
        """Return the isolated jobs that are the only jobs of their worker."""
        held = [case for case in self.cases.values() if case.fence is not None]
        counts = Counter(case.worker for case in held)
        return {case.id for case in held if case.isolated and counts[case.worker] == 1}

    def _part(self, workers: set[str]) -> None:
        """Record that workers have lost part of their leases: the rest was not alone."""
        for case in self.cases.values():
            if case.fence is not None and case.worker in workers:
                case.isolated = False

    def _check_after_outage(self, case: Case, rescuer: WorkerTruth) -> None:
        status, now = self._status, self._world.now
        long_enough = 4 * status.lasted > 1.2 * rescuer.lease
        since = now - status.back_at
        could_see = rescuer.misled_at < status.back_at - status.lasted
        if long_enough and could_see and since < 0.45 * case.duration:
            message = f"{rescuer.id} took it from {case.worker} {since} microseconds after an outage"
            raise Violated("rescue", message, case.id)

    def _check_health(self, case: Case, rescuer: WorkerTruth) -> None:
        holder = self.workers[case.worker]
        calm = min(self._world.now - holder.troubled_until, self._model.now - case.claimed)
        if holder.is_healthy and case.fence in holder.fences and calm > case.duration:
            message = f"{rescuer.id} took it from {holder.id}, which was healthy for {calm} microseconds"
            raise Violated("rescue", message, case.id)

    def worker_rescued(self, worker_id: str, rescued: Sequence[Rescued]) -> None:
        """Check leases taken from a dead worker."""
        alone = self._alone()
        for each in rescued:
            case = self.cases[each.job_id]
            if case.fence is None or case.worker != worker_id:
                raise Violated("rescue", f"taken as one of {worker_id}, but held by {case.worker}", case.id)
            case.lose(alone=case.id in alone)
            self._check_state(case, each.state)
        self._part({worker_id})

    def _check_state(self, case: Case, state: JobState) -> None:
        expected = case.state or JobState.READY
        if state is not expected:
            raise Violated("loss", f"lost for the {case.lost}. time: now {state}, not {expected}", case.id)

    # --- operator actions -------------------------------------------------------------------------------------------

    def cancelled(self, job_id: str) -> None:
        """Record a cancel request."""
        case = self.cases[job_id]
        if case.fence is not None:
            case.cancel_asked = True
        elif case.state is None:
            case.end(JobState.CANCELLED)

    def reset(self, job_id: str, was_running: bool) -> None:
        """Check an operator's reset of a lease."""
        case = self.cases[job_id]
        if was_running != (case.fence is not None):
            raise Violated("fence", f"a reset was answered {was_running}", job_id)
        if was_running:
            case.release()

    def retried(self, job_id: str, was_final: bool) -> None:
        """Check an operator's retry."""
        case = self.cases[job_id]
        if was_final != (case.state in {JobState.FAILED, JobState.CANCELLED}):
            raise Violated("kept", f"a retry was answered {was_final}", job_id)
        if was_final:
            case.reopen(self._model.now)
            case.place = self._next_place()
            case.came_at = self._world.now

    def paused(self, queue: str, is_paused: bool) -> None:
        """Record that a queue is paused or resumed."""
        (self._paused.add if is_paused else self._paused.discard)(queue)

    # --- workers and the end ----------------------------------------------------------------------------------------

    def emptiness_read(
        self, request: ClaimRequest, is_empty: bool, *, then: Docket, as_of: int, claimed_at: int
    ) -> None:
        """Check the reply whether anything is left; a stale reply must have been right at its time.

        It must not be older than `claimed_at`, the last claim whose reply the worker had when it sent the read: a
        worker that claimed without result, and then reads that nothing is left, must be able to rely on both together.
        """
        if not is_empty:
            return
        for case in then.left(request.queues):
            raise Violated("until empty", f"{request.worker_id} read that nothing is left", case.id)
        if as_of < claimed_at:
            for case in self.docket.left(request.queues):
                if as_of < case.came_at <= claimed_at:
                    message = f"{request.worker_id} read that nothing is left, from a state older than its last claim"
                    raise Violated("until empty", message, case.id)

    def emptied(self, worker: WorkerTruth, as_of: int) -> None:
        """Check a worker that exits because it read, as of a time, that nothing is left.

        It must not exit over jobs that it has held since: that read could not show them.
        """
        for case in self.cases.values():
            mine = case.last_fence in worker.fences and case.taken_at > as_of
            if mine and case.state is None and case.new.queue not in self._paused:
                message = f"{worker.id} exited by a read older than its own lease of this job, which is left"
                raise Violated("until empty", message, case.id)

    def left(self, worker: WorkerTruth, totals: Totals) -> None:
        """Check the exit of a worker: it holds no lease that it knows of, unless the store was unavailable."""
        counted = sum(msgspec.structs.astuple(totals))
        if counted != worker.taken:
            raise Violated("tally", f"{worker.id} received {worker.taken} jobs and counts {counted}: {totals}")
        if totals.abandoned:
            return
        for case in self.cases.values():
            if case.fence is not None and case.fence in worker.fences and case.worker == worker.id:
                raise Violated("leaving", f"{worker.id} exited and left its lease behind", case.id)

    def recovered(self, since: int) -> None:
        """Check, in a time without faults since `since`, that no lease of a dead worker outlives its bound."""
        for case in self.cases.values():
            ended_at = None if case.fence is None else self.workers[case.worker].ended_at
            if ended_at is None:
                continue
            longest = max(worker.lease for worker in self.workers.values())
            late = self._world.now - max(since, ended_at) - case.duration - longest - _SLACK
            if late > 0:
                raise Violated(
                    "recovery", f"{case.worker} is dead and still holds it, {late} microseconds late", case.id
                )

    def conclude(self) -> None:
        """Compare all jobs of the model with the cases."""
        records = self._model.records
        if records.keys() != self.cases.keys():
            odd = min(records.keys() ^ self.cases.keys())
            raise Violated("kept", "lost, or never accepted", odd)
        for case in self.cases.values():
            record = records[case.id]
            if case.state is not (record.state if record.is_final else None):
                raise Violated("kept", f"it is {record.state}, not {case.state or 'open'}", case.id)
            if case.effects != (case.transactional and case.state is JobState.COMPLETED):
                raise Violated("effect", f"{case.state} with {case.effects} effects", case.id)
