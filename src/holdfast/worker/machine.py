"""What a worker decides, as a state machine: events go in, `decide` says what to do next.

Nothing here does I/O, reads a clock, draws a random number or knows an event loop. `now` is passed in, in seconds of a
monotonic clock. The worker runs this machine; a simulator drives the same code.

The shell around it calls `decide` after each batch of events, does what the decision says, and reports each call's
answer as one event. It begins jobs with `take` and reports their ends with `ended`; both are in `custody`, with the way
of a job. All methods are called on one thread, the loop's; only `holdings` is shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.job import Lease, LeasedJob
from holdfast.store.values import Finish, Promotion, Verdict
from holdfast.worker.claim_pacing import Claims
from holdfast.worker.decision import Decision, Exit, Why, WorkerPhase
from holdfast.worker.in_flight import InFlight
from holdfast.worker.maintenance import NEVER, Chore, Maintenance
from holdfast.worker.release_buffer import MAX_TRIES
from holdfast.worker.settings import WorkerConfig


class Machine(InFlight):
    """The decisions of one worker."""

    def __init__(self, settings: WorkerConfig) -> None:
        super().__init__(settings)
        self._claims = Claims(settings)
        self._upkeep = Maintenance(settings)
        self._head: LeasedJob | None = None  # the prefetched job whose turn is next, and since when it waits
        self._head_since = 0.0
        self._phase_until = NEVER
        self._taken_since_look = False  # work was handed out here after the last look whether anything is left

    # --- answers about jobs ------------------------------------------------------------------------------------------

    def claimed(self, now: float, jobs: Sequence[LeasedJob], *, asked: int, sent_at: float) -> None:
        """Take in the answer to a claim for `asked` jobs that was sent at `sent_at`."""
        self._upkeep.access.succeeded(now)
        self._claims.answered(now, len(jobs), asked=asked)
        if jobs:
            self._taken_since_look = True
        self._hold(jobs, sent_at)

    def claim_failed(self, now: float) -> None:
        """Note that a claim failed or has an unknown outcome."""
        self._upkeep.access.failed()
        self._claims.failed(now)

    def flushed(self, now: float, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> None:
        """Take in the verdicts on a flush, in its order."""
        self._upkeep.access.succeeded(now)
        for seq in self._finishes.answered():
            self._held.pop(seq, None)  # a task that its handler left behind may have settled it meanwhile
        delay = self._tally.count(finishes, verdicts)
        if delay is not None:
            self._upkeep.scheduled(now, delay)

    def flush_failed(self, now: float, finishes: Sequence[Finish]) -> None:
        """Note that a flush failed or has an unknown outcome: it is repeated, and its jobs stay held."""
        self._upkeep.access.failed()
        self._tally.lost += len(finishes) - len(self._finishes.flushing)  # claimed anew meanwhile: not repeated
        self._finishes.failed(now)
        if self._phase is WorkerPhase.RELEASING and self._finishes.backoff.failures >= MAX_TRIES:
            self._abandon(self._finishes.abandon())

    def released(self, now: float, leases: Sequence[Lease]) -> None:
        """Note leases that were given back, or that the store called stale as they were."""
        self._upkeep.access.succeeded(now)
        for seq in self._releases.answered(leases):
            self.holdings.drop(seq)
            self._tally.released += 1

    def release_failed(self, now: float, leases: Sequence[Lease]) -> None:
        """Note that giving back failed: it is repeated; a stopping worker at last leaves the leases to expire."""
        self._upkeep.access.failed()
        self._releases.failed(now, leases)
        if self._phase is not WorkerPhase.RUNNING and self._releases.backoff.failures >= MAX_TRIES:
            self._abandon(self._releases.abandon())

    # --- hints and upkeep --------------------------------------------------------------------------------------------

    def woken(self, now: float) -> None:
        """Note a hint that there may be work."""
        self._claims.woken()
        self._upkeep.woken(now)

    def promoted(self, now: float, promotion: Promotion) -> None:
        """Take in the answer to a promotion."""
        self._upkeep.access.succeeded(now)
        if self._upkeep.promoted(now, promotion):
            self._claims.woken()

    def rescued(self, now: float, count: int, *, asked: int) -> None:
        """Take in how many leases were rescued."""
        self._upkeep.access.succeeded(now)
        self._upkeep.rescued(now, count, asked=asked)
        if count:
            self.woken(now)

    def pruned(self, now: float, count: int, asked: int) -> None:
        """Take in how many jobs were pruned."""
        self._upkeep.access.succeeded(now)
        self._upkeep.pruned(now, count, asked=asked)

    def stalled(self) -> None:
        """Note that a call took longer than access may be silent, before the event of its answer.

        Calls that only read may have been answered meanwhile: they say nothing of whether leases could be extended.
        """
        self._upkeep.access.failed()

    def upkeep_failed(self, now: float) -> None:
        """Note that the promotion, rescue, pruning or check for emptiness in flight failed."""
        self._upkeep.access.failed()
        self._upkeep.failed(now)

    def emptiness(self, now: float, is_empty: bool) -> None:
        """Take in whether anything is left to do; an idle worker in until-empty mode then ends.

        Not if it was handed work after it had asked: that answer may be of before, and cannot tell what became of it.
        """
        self._upkeep.access.succeeded(now)
        self._upkeep.checked()
        if is_empty and not self._taken_since_look and self._may_check():
            self._phase = WorkerPhase.ENDED

    def _may_check(self) -> bool:
        claims = self._claims
        flying = claims.in_flight or self._finishes.in_flight or self._releases.in_flight  # of jobs held no more, too
        quiet = not (self._held or self._running or self._ghosts or flying or claims.hungry)
        return quiet and self._settings.until_empty and self._phase is WorkerPhase.RUNNING

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Drain: begin nothing more, give back what has not begun. A second time: abort and give back everything."""
        if self._phase is WorkerPhase.RUNNING:
            self._phase = WorkerPhase.DRAINING
            self._phase_until = now + self._settings.drain_timeout
            self._release_prefetched()
        elif self._phase is WorkerPhase.DRAINING:
            self._begin_releasing(now)

    def _begin_releasing(self, now: float) -> None:
        self._phase = WorkerPhase.RELEASING
        self._phase_until = now + self._settings.abort_grace
        self._aborts.extend((job, Why.SHUTDOWN) for job in self._running.values())

    def _leave_behind(self, now: float) -> None:
        """Give back what would not unwind. A handler in its own transaction has as long again, then it is left.

        Whoever is left behind is told that the job is held no longer, so that it need not run beside the next holder.
        """
        patient = now < self._phase_until + self._settings.abort_grace
        for seq, job in list(self._running.items()):
            settling = seq in self.holdings.settling_seqs
            if settling and patient:
                continue
            self._to_ghosts(seq)
            if settling:
                self._abandon([seq])
            elif seq in self._held:
                self._releases.add(job.lease, started=True)
            else:
                self._tally.completed += 1  # settled; only its handler goes on
                continue
            self._aborts.append((job, Why.LEASE_LOST))

    def _leave_at(self, now: float) -> float:
        if self._phase is WorkerPhase.RELEASING and now >= self._phase_until:
            return self._phase_until + self._settings.abort_grace if self._running else NEVER
        return self._phase_until

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> Decision:
        """Return what is to be done now; everything in it counts as begun."""
        decision = Decision()
        due_at = NEVER
        if self._phase is WorkerPhase.RUNNING:
            due_at = min(self._decide_claim(now, decision), self._decide_upkeep(now, decision))
        else:
            self._decide_leaving(now)
        idle = not (self._running or self._prefetched)
        decision.flush = self._finishes.batch(now, idle=idle)
        decision.release_unstarted, decision.release_started = self._releases.batch(now)
        if self._aborts:
            decision.abort, self._aborts = self._aborts, []
        if self._phase is WorkerPhase.ENDED:
            unfinished = self._releases.any_started or self._tally.abandoned
            decision.exit = Exit.RELEASED if unfinished else Exit.DRAINED
            return decision
        due_at = min(due_at, self._finishes.due_at(idle=idle), self._releases.due_at(), self._leave_at(now))
        decision.wait = None if due_at == NEVER else max(due_at - now, 0.0)
        return decision

    def _decide_claim(self, now: float, decision: Decision) -> float:
        free = self._concurrency - len(self._running) - len(self._ghosts)
        self._claims.pace.sample(now, self._endings, running=len(self._running))
        if now >= self._good_until:
            self._release_aged(now)
        give_back_at = self._decide_patience(now, free)
        if self._finishes.congested:
            return give_back_at
        prefetched = len(self._prefetched)
        decision.claim = self._claims.limit(now, free=free, prefetched=prefetched)
        self._low = self._claims.low()
        return min(give_back_at, self._claims.due_at(free=free, prefetched=prefetched))

    def _decide_patience(self, now: float, free: int) -> float:
        """Give back what has waited too long behind busy slots, for idle workers to run; return when that is next."""
        if free > 0 or not self._prefetched:
            self._head = None
            return NEVER
        if self._prefetched[0] is not self._head:
            self._head = self._prefetched[0]
            self._head_since = now
        give_back_at = self._head_since + self._settings.patience
        if now < give_back_at:
            return give_back_at
        self._release_prefetched()
        self._claims.pace.forget()
        return NEVER

    def _decide_upkeep(self, now: float, decision: Decision) -> float:
        may_check = self._may_check()
        match self._upkeep.chore(now, may_check=may_check):
            case Chore.PROMOTE:
                decision.promote = True
            case Chore.RESCUE:
                decision.rescue = self._upkeep.unbroken(now)
            case Chore.CHECK_EMPTY:
                decision.check_empty = True
                self._taken_since_look = False
            case Chore.PRUNE:
                decision.prune = True
            case None:
                pass
        return self._upkeep.due_at(may_check=may_check)

    def _decide_leaving(self, now: float) -> None:
        if self._phase is WorkerPhase.DRAINING and now >= self._phase_until:
            self._begin_releasing(now)
        if self._phase is WorkerPhase.RELEASING and now >= self._phase_until:
            self._leave_behind(now)
        if not (
            self._held
            or self._running
            or self._claims.in_flight
            or self._finishes.in_flight
            or self._releases.in_flight
        ):
            self._phase = WorkerPhase.ENDED
            self._tally.completed += len(self._releases.abandon())  # settled by handlers that were left behind
