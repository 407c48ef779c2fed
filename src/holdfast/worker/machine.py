"""The decisions of a worker, as a state machine: events go in, `decide` returns what to do next.

It does no I/O, reads no clock, draws no random number and knows no event loop. `now` is passed in, in seconds of a
monotonic clock. The worker runs this machine; the simulator runs the same code.

The caller calls `decide` after each batch of events, carries out the decision, and reports the result of each store
call as one event. It begins jobs with `take` and reports their ends with `ended`. All methods are called on one thread,
that of the event loop; only `holdings` is shared.

`InFlight` knows where each job is; this module knows the phase of the worker, and when to claim, do maintenance,
release and end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.outcome import Outcome
from holdfast.store.values import Finish, Promotion, Verdict
from holdfast.worker.claim_pacing import Claims
from holdfast.worker.decision import Decision, Exit, Status, WorkerPhase
from holdfast.worker.forming import BatchSize
from holdfast.worker.in_flight import InFlight
from holdfast.worker.limited_jobs import LimitedJobs
from holdfast.worker.maintenance import NEVER, Chore, Maintenance
from holdfast.worker.release_buffer import MAX_ATTEMPTS
from holdfast.worker.settings import WorkerConfig


class Machine:
    """The decisions of one worker."""

    def __init__(self, settings: WorkerConfig, batches: Mapping[str, BatchSize] | None = None) -> None:
        """`batches` are the tasks that run in batches."""
        self._settings = settings
        self.jobs = InFlight(settings, batches)
        self.holdings = self.jobs.holdings
        self.take, self.ended = self.jobs.take, self.jobs.ended  # bound: no second call per job
        self.take_batch, self.ended_next = self.jobs.take_batch, self.jobs.ended_next
        self.lost, self.cancel_asked = self.jobs.lost, self.jobs.cancel_asked
        self._claims = Claims(settings)
        self._limited = LimitedJobs(self.jobs, settings.concurrency)
        self._maintenance = Maintenance(settings)
        self._head: LeasedJob | None = None  # the next prefetched job, and since when it waits
        self._head_since = 0.0
        self._phase = WorkerPhase.RUNNING
        self._phase_until = NEVER
        self._claimed_since_check = False  # jobs were claimed after the last check for emptiness

    # --- replies about jobs ------------------------------------------------------------------------------------------

    def claimed(
        self,
        now: float,
        jobs: Sequence[LeasedJob],
        *,
        asked: int,
        sent_at: float,
        limited: Collection[int] = (),
        limited_for: float | None = None,
    ) -> None:
        """Process the reply to a claim for `asked` jobs that was sent at `sent_at`.

        `limited` are the seqs of those that limits concern. `limited_for`: jobs over a limit were passed over, and it
        may have room after so many seconds; inf: when a job has ended, here or elsewhere.
        """
        self._maintenance.access.succeeded(now)
        self._claims.answered(now, len(jobs), asked=asked, limited_for=limited_for)
        if jobs:
            self._claimed_since_check = True
        self.jobs.claimed(jobs, sent_at, now)
        if limited:
            self._limited.claimed(limited)

    def claim_failed(self, now: float) -> None:
        """Process a claim that failed or has an unknown outcome."""
        self._maintenance.access.failed()
        self._claims.failed(now)

    def batch_ended(
        self, now: float, jobs: Sequence[LeasedJob], outcomes: Sequence[Outcome | None], written: Sequence[Finish]
    ) -> None:
        """Process the end of a batch, whose transaction has written the outcomes `written`."""
        delay = self.jobs.batch_ended(now, jobs, outcomes, written)
        if delay is not None:
            self._maintenance.scheduled(now, delay)

    def flushed(self, now: float, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> None:
        """Process the verdicts on a flush, in its order."""
        self._maintenance.access.succeeded(now)
        delay = self.jobs.flushed(now, finishes, verdicts)
        if delay is not None:
            self._maintenance.scheduled(now, delay)
        buffer = self.jobs.finishes
        if self._phase is WorkerPhase.RELEASING and buffer.delays >= MAX_ATTEMPTS:
            self.jobs.abandon(buffer.abandon_delayed())

    def flush_failed(self, now: float, finishes: Sequence[Finish]) -> None:
        """Process a flush that failed or has an unknown outcome: it is repeated, and its leases are kept."""
        self._maintenance.access.failed()
        self.jobs.flush_failed(now, finishes)
        buffer = self.jobs.finishes
        if self._phase is WorkerPhase.RELEASING and buffer.backoff.failures >= MAX_ATTEMPTS:
            self.jobs.abandon(buffer.abandon())

    def released(self, now: float, leases: Sequence[Lease]) -> None:
        """Process leases that were released, or that were stale by then."""
        self._maintenance.access.succeeded(now)
        self.jobs.released(leases)

    def release_failed(self, now: float, leases: Sequence[Lease]) -> None:
        """Process a release that failed: it is repeated; a stopping worker finally leaves the leases to expire."""
        self._maintenance.access.failed()
        releases = self.jobs.releases
        releases.failed(now, leases)
        if self._phase is not WorkerPhase.RUNNING and releases.backoff.failures >= MAX_ATTEMPTS:
            self.jobs.abandon(releases.abandon())

    # --- notifications and maintenance -------------------------------------------------------------------------------

    def woken(self, now: float) -> None:
        """Process a notification that jobs may be ready."""
        self._claims.woken()
        self._maintenance.woken(now)

    def promoted(self, now: float, promotion: Promotion) -> None:
        """Process the reply to a promotion."""
        self._maintenance.access.succeeded(now)
        if self._maintenance.promoted(now, promotion):
            self._claims.woken()

    def rescued(self, now: float, count: int, *, asked: int) -> None:
        """Process the number of rescued leases."""
        self._maintenance.access.succeeded(now)
        self._maintenance.rescued(now, count, asked=asked)
        if count:
            self.woken(now)

    def pruned(self, now: float, count: int, asked: int) -> None:
        """Process the number of pruned jobs."""
        self._maintenance.access.succeeded(now)
        self._maintenance.pruned(now, count, asked=asked)

    def stalled(self) -> None:
        """Process a call that took longer than access may be silent; its reply follows as a separate event.

        Replies to other calls that only read do not prove that leases could be extended meanwhile.
        """
        self._maintenance.access.failed()

    def maintenance_failed(self, now: float) -> None:
        """Process the failure of the promotion, rescue, pruning or check for emptiness in flight."""
        self._maintenance.access.failed()
        self._maintenance.failed(now)

    def emptiness(self, now: float, is_empty: bool) -> None:
        """Process whether any job is left; an idle worker in until-empty mode then ends.

        Not if it has claimed jobs since it asked: the reply may be older than the claim.
        """
        self._maintenance.access.succeeded(now)
        self._maintenance.checked()
        if is_empty and not self._claimed_since_check and self._may_check():
            self._phase = WorkerPhase.ENDED

    def _may_check(self) -> bool:
        if not self._settings.until_empty or self._phase is not WorkerPhase.RUNNING:
            return False
        jobs, claims = self.jobs, self._claims
        return jobs.is_done and not (jobs.ghosts or claims.in_flight or claims.hungry)

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Drain: begin no more jobs, release those that have not begun. A second call aborts and releases the rest."""
        if self._phase is WorkerPhase.RUNNING:
            self._phase = WorkerPhase.DRAINING
            self._phase_until = now + self._settings.drain_timeout
            self.jobs.begin_no_more()
        elif self._phase is WorkerPhase.DRAINING:
            self._begin_releasing(now)

    def _begin_releasing(self, now: float) -> None:
        self._phase = WorkerPhase.RELEASING
        self._phase_until = now + self._settings.abort_grace
        self.jobs.abort_all()

    def _leave_at(self, now: float) -> float:
        if self._phase is WorkerPhase.RELEASING and now >= self._phase_until:
            return self._phase_until + self._settings.abort_grace if self.jobs.running else NEVER
        return self._phase_until

    def status(self) -> Status:
        """Return a snapshot for display."""
        return self.jobs.status(self._phase)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> Decision:
        """Return what to do now; everything in it counts as begun."""
        jobs = self.jobs
        decision = Decision()
        due_at = NEVER
        if self._phase is WorkerPhase.RUNNING:
            due_at = min(self._decide_claim(now, decision), self._decide_maintenance(now, decision))
        else:
            self._decide_leaving(now)
        idle = jobs.is_idle
        decision.flush = jobs.finishes.batch(now, idle=idle)
        decision.release_unstarted, decision.release_started = jobs.releases.batch(now)
        decision.abort = jobs.take_aborts()
        if self._phase is WorkerPhase.ENDED:
            unfinished = jobs.releases.any_started or jobs.totals.abandoned
            decision.exit = Exit.RELEASED if unfinished else Exit.DRAINED
            return decision
        due_at = min(due_at, jobs.finishes.due_at(idle=idle), jobs.releases.due_at(), self._leave_at(now))
        decision.wait = None if due_at == NEVER else max(due_at - now, 0.0)
        return decision

    def _decide_claim(self, now: float, decision: Decision) -> float:
        jobs, claims = self.jobs, self._claims
        free = jobs.free
        claims.pace.sample(now, jobs.endings, running=len(jobs.running))
        if now >= jobs.good_until:
            jobs.release_aged(now)
        release_at = self._decide_release(now, free)
        if jobs.finishes.congested:
            return release_at
        prefetched = jobs.waiting
        if jobs.forming.sizes:
            release_at = min(release_at, jobs.forming.due_at() if free > 0 else NEVER)
            free = jobs.forming.room(free)
        if self._limited.any_ended():
            claims.freed(now)
        decision.claim = claims.limit(now, free=free, prefetched=prefetched)
        if decision.claim:
            decision.slots = max(0, free - prefetched, min(self._limited.room, claims.soon()))
        jobs.low = claims.low()
        return min(release_at, claims.due_at(free=free, prefetched=prefetched))

    def _decide_release(self, now: float, free: int) -> float:
        """Release jobs that have waited too long for a slot, for idle workers; return when that is due next."""
        head = self.jobs.head
        if free > 0 or head is None:
            self._head = None
            return NEVER
        if head is not self._head:
            self._head = head
            self._head_since = now
        release_at = self._head_since + self._settings.release_timeout
        if now < release_at:
            return release_at
        self.jobs.release_prefetched()
        self._claims.pace.forget()
        return NEVER

    def _decide_maintenance(self, now: float, decision: Decision) -> float:
        may_check = self._may_check()
        match self._maintenance.chore(now, may_check=may_check):
            case Chore.PROMOTE:
                decision.promote = True
            case Chore.RESCUE:
                decision.rescue = self._maintenance.unbroken(now)
            case Chore.CHECK_EMPTY:
                decision.check_empty = True
                self._claimed_since_check = False
            case Chore.PRUNE:
                decision.prune = True
            case None:
                pass
        return self._maintenance.due_at(may_check=may_check)

    def _decide_leaving(self, now: float) -> None:
        if self._phase is WorkerPhase.DRAINING and now >= self._phase_until:
            self._begin_releasing(now)
        if self._phase is WorkerPhase.RELEASING and now >= self._phase_until:
            self.jobs.leave_behind(settling_too=now >= self._phase_until + self._settings.abort_grace)
        if self.jobs.is_done and not self._claims.in_flight:
            self._phase = WorkerPhase.ENDED
            self.jobs.totals.completed += len(self.jobs.releases.abandon())  # settled by handlers left behind
