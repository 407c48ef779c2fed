"""Every job that this worker has claimed, until the store confirms that its lease has ended.

```text
             claimed                take                 ended                 flushed
   (store) ──────────▶ prefetched ────────▶ running ───────────────▶ buffer ───────────▶ (store)
                           │                   │ ended(None): settled in its own transaction ──▶ (store)
                           │ stop,             │ stop, drain_timeout
                           ▼ release_timeout   ▼
                       releases: unstarted   releases: started ── released ──▶ (store)
```

A job is in exactly one of these places, and its lease is extended in all of them (see `held_leases`). When the lease is
lost, the job leaves them; if its handler runs, it becomes a *ghost*: it is aborted, its outcome is ignored, and its
slot stays taken until it has ended.

Jobs of a task with batches wait in `forming` until their batch is full or has waited long enough; then all of them run
in one slot.

The per-job methods, `take` and `ended`, do a fixed number of dict and deque operations; all others are per batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.outcome import Cancelled, Completed, Outcome
from holdfast.store.values import Finish, Verdict
from holdfast.worker.decision import Status, Why, WorkerPhase
from holdfast.worker.finish_buffer import Finishes
from holdfast.worker.forming import BatchSize, Forming
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.release_buffer import Releases
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.totals import TotalsCounter

_NEVER = float("inf")


class InFlight:
    """The jobs of one worker, and their moves between places; independent of the phase and of calls in flight."""

    def __init__(self, settings: WorkerConfig, batches: Mapping[str, BatchSize] | None = None) -> None:
        self._concurrency = settings.concurrency
        self._flush_rows = settings.flush_rows
        self._keeps_claimed = True
        self._releases_unwritten = False
        self._aborts: list[tuple[LeasedJob, Why]] = []
        self._cancel_asked: set[tuple[int, int]] = set()
        self.holdings = HeldLeases(lease=settings.lease, extend_at=settings.extend_at)
        self._held = self.holdings.jobs
        self.prefetched: deque[LeasedJob] = deque()
        self.forming = Forming(batches or {})
        self._shared = 0  # running jobs and ghosts that share the slot of another job of their batch
        self.running: dict[int, LeasedJob] = {}
        self.ghosts: dict[tuple[int, int], LeasedJob] = {}  # by seq and fence
        self.finishes = Finishes(settings)
        self.releases = Releases()
        self.totals = TotalsCounter()
        self.endings = 0
        """The number of handlers that have ended."""
        self.low = 0
        """With this many prefetched jobs or fewer, `ended` requests a decision, so that more are claimed."""
        self.good_until = _NEVER
        """When the oldest prefetched lease becomes too old to begin a handler under it."""

    # --- one job ----------------------------------------------------------------------------------------------------

    def take(self) -> LeasedJob | None:
        """Return the next job to begin, which is then running; None if there is none or no slot is free.

        Only `release_aged` looks at the age of leases: decide first, and again when time has passed.
        """
        running = self.running
        prefetched = self.prefetched
        if len(running) + len(self.ghosts) - self._shared >= self._concurrency:
            return None
        while prefetched:
            job = prefetched.popleft()
            seq = job.seq
            if self.holdings.stale.get(seq) == job.fence:
                self._give_up(seq)
                continue
            running[seq] = job
            return job
        return None

    def take_batch(self, now: float) -> list[LeasedJob]:
        """Return the jobs of a batch to begin, which are then running in one slot; none if no batch is due."""
        if self.free <= 0:
            return []
        while jobs := self.forming.take(now, others_wait=bool(self.prefetched)):
            stale = self.holdings.stale
            begun = [job for job in jobs if stale.get(job.seq) != job.fence] if stale else jobs
            for job in jobs if len(begun) < len(jobs) else ():
                if stale.get(job.seq) == job.fence:
                    self._give_up(job.seq)
            if begun:
                self.running.update({job.seq: job for job in begun})
                self._shared += len(begun) - 1
                return begun
        return []

    def batch_ended(
        self, now: float, jobs: Sequence[LeasedJob], outcomes: Sequence[Outcome | None], written: Sequence[Finish]
    ) -> float | None:
        """Record the end of a batch: each job ends by itself, and their slot is free.

        `written` are the outcomes that its transaction has written. Returns the shortest delay until one of its jobs
        runs again.
        """
        running, held = self.running, self._held
        others = [finish for finish in written if type(finish.outcome) is not Completed]
        others = [finish for finish in others if finish.lease.seq in running]
        settled = 0
        for job, outcome in zip(jobs, outcomes, strict=True):
            seq = job.seq
            if outcome is None and seq not in held and running.get(seq) is job:
                del running[seq]
                settled += 1
                if self._cancel_asked:
                    self._cancel_asked.discard((seq, job.fence))
            else:
                self.ended(now, job, outcome)
        self.endings += settled
        self.totals.completed += settled
        self._shared -= len(jobs) - 1
        self.totals.completed -= len(others)  # counted by `ended` as completed
        return self.totals.count(others, [Verdict.DONE] * len(others))

    def ended(self, now: float, job: LeasedJob, outcome: Outcome | None) -> bool:
        """Record the end of a handler; return whether to decide before the next job is begun.

        Without an outcome there is no finish to write: the handler's own transaction has settled the job or, after an
        abort with SHUTDOWN, the handler did not reach an outcome. A decision is also due when `take` returns None and
        when `Decision.wait` has passed.
        """
        seq = job.seq
        if self.running.get(seq) is not job:
            self._ghost_ended(job)
            return True
        del self.running[seq]
        self.endings += 1
        if self._cancel_asked:
            self._cancel_asked.discard((seq, job.fence))
        if outcome is None or seq not in self._held:
            self._ended_unwritten(job)
            return len(self.prefetched) <= max(self.low, 0)
        if self.holdings.settling_seqs:
            self.holdings.unsettled(seq)
        finishes = self.finishes
        buffer = finishes.buffer
        if not buffer:
            finishes.oldest = now
        buffer[seq] = Finish(Lease(job.id, seq, job.fence), outcome)
        is_full = len(buffer) >= self._flush_rows and not finishes.in_flight
        return is_full or len(self.prefetched) <= self.low

    def ended_next(self, now: float, job: LeasedJob, outcome: Outcome | None) -> LeasedJob | None:
        """Record the end of a handler; return the next job, which is then running, unless a decision is due before."""
        if self.ended(now, job, outcome) or self.forming or now >= self.good_until:
            return None
        return self.take()

    def _ghost_ended(self, job: LeasedJob) -> None:
        if self.ghosts.pop((job.seq, job.fence), None) is None:
            raise ValueError(f"job {job.id} is not running here under fence {job.fence}: its end was reported twice")
        self.endings += 1
        if job.seq not in self._held:
            self.holdings.unsettled(job.seq)

    def _ended_unwritten(self, job: LeasedJob) -> None:
        if self._releases_unwritten and job.seq in self._held:
            self.holdings.unsettled(job.seq)
            self.releases.add(job.lease, started=True)  # if it was settled after all, the store answers LOST
        else:
            self.holdings.settled(job.seq)
            self.totals.completed += 1

    # --- replies of the store ---------------------------------------------------------------------------------------

    def claimed(self, jobs: Sequence[LeasedJob], sent_at: float, now: float) -> None:
        """Add the jobs of a claim that was sent at `sent_at` and is answered now."""
        seqs = [job.seq for job in jobs]
        if not (self._held.keys().isdisjoint(seqs) and self.running.keys().isdisjoint(seqs)):
            for seq in seqs:
                self._supersede(seq)
            self._sweep()
        self.holdings.add(jobs, sent_at)
        if self._keeps_claimed:
            self.prefetched.extend(self.forming.add(jobs, now) if self.forming.sizes else jobs)
            if jobs:  # all were claimed at once
                self.good_until = min(self.good_until, self.holdings.good_until(jobs[0]))
        else:
            for job in jobs:
                self.releases.add(job.lease, started=False)

    def flushed(self, now: float, finishes: Sequence[Finish], verdicts: Sequence[Verdict]) -> float | None:
        """Record the verdicts on a flush, in its order; return the shortest delay until one of its jobs runs again."""
        if Verdict.DELAYED in verdicts:
            pairs = list(zip(finishes, verdicts, strict=True))
            delayed = [finish for finish, verdict in pairs if verdict is Verdict.DELAYED]
            self.totals.lost += len(delayed) - self.finishes.delay(now, delayed)  # the rest was claimed again meanwhile
            finishes = [finish for finish, verdict in pairs if verdict is not Verdict.DELAYED]
            verdicts = [verdict for verdict in verdicts if verdict is not Verdict.DELAYED]
        for seq in self.finishes.answered():
            self._held.pop(seq, None)  # a task that its handler left running may have settled it meanwhile
        return self.totals.count(finishes, verdicts)

    def flush_failed(self, now: float, finishes: Sequence[Finish]) -> None:
        """Record that a flush failed or has an unknown outcome: it is repeated, and its leases are kept."""
        self.totals.lost += len(finishes) - len(self.finishes.flushing)  # claimed again meanwhile: not repeated
        self.finishes.failed(now)

    def released(self, leases: Sequence[Lease]) -> None:
        """Record leases that were released, or that were stale by then."""
        for seq in self.releases.answered(leases):
            self.holdings.drop(seq)
            self.totals.released += 1

    def lost(self, now: float, leases: Iterable[Lease]) -> list[LeasedJob]:
        """Remove leases that the store reported as stale: no finish is written, and handlers are aborted.

        Returns the jobs whose leases were held until now. A job that is being settled, flushed or released is left to
        the reply to that: its lease may be gone because the write succeeded.
        """
        del now
        lost: list[LeasedJob] = []
        for lease in leases:
            seq = lease.seq
            self.holdings.stale.pop(seq, None)
            job = self._held.get(seq)
            unclear = seq in self.holdings.settling_seqs or self.finishes.is_sent(seq) or self.releases.is_flying(seq)
            if job is not None and job.fence == lease.fence and not unclear:
                self._give_up(seq)
                lost.append(job)
        self._sweep()
        return lost

    def cancel_asked(self, now: float, leases: Iterable[Lease]) -> None:
        """Abort, once each, handlers whose cancellation was requested; a job not yet begun ends as cancelled."""
        for lease in leases:
            seq = lease.seq
            job = self._held.get(seq)
            if job is None or job.fence != lease.fence:
                continue
            if seq in self.running:
                if (seq, job.fence) not in self._cancel_asked:
                    self._cancel_asked.add((seq, job.fence))
                    self._aborts.append((job, Why.CANCEL_ASKED))
            elif not (self.finishes.has(seq) or seq in self.releases):
                if not self.finishes.buffer:
                    self.finishes.oldest = now
                self.finishes.buffer[seq] = Finish(lease, Cancelled("cancelled before its handler began, as requested"))
        self._sweep()

    def _supersede(self, seq: int) -> None:
        """Remove an earlier attempt of a job that was claimed here again, under a later fence."""
        if seq in self._held:
            self._give_up(seq)
        elif seq in self.running:  # settled, then retried by an operator, and the first handler still runs
            self._to_ghosts(seq)
            self.totals.completed += 1

    def _give_up(self, seq: int) -> None:
        """Remove a job whose lease is lost, wherever it is; `_sweep` removes it from the prefetched ones."""
        job = self._held.pop(seq, None)
        if job is None:  # its handler's thread has just settled it
            return
        self.holdings.settling_seqs.discard(seq)
        self.holdings.stale.pop(seq, None)
        if seq in self.running:
            self._to_ghosts(seq)
            self._aborts.append((job, Why.LEASE_LOST))
        elif seq in self.finishes.flushing:
            self.finishes.forget(seq)  # it is counted when the verdict arrives
            return
        else:
            self.finishes.forget(seq)
            self.releases.forget(seq)
        self.totals.lost += 1

    def _sweep(self) -> None:
        """Remove prefetched jobs whose lease is lost or that have ended; once per batch, not per job."""
        held, buffer, prefetched = self._held, self.finishes.buffer, self.prefetched
        waiting = [job for job in prefetched if held.get(job.seq) is job and job.seq not in buffer]
        if len(waiting) != len(prefetched):
            prefetched.clear()
            prefetched.extend(waiting)
        if self.forming:
            self.forming.keep(lambda job: held.get(job.seq) is job and job.seq not in buffer)

    def _to_ghosts(self, seq: int) -> None:
        job = self.running.pop(seq)
        self._cancel_asked.discard((seq, job.fence))
        self.ghosts[seq, job.fence] = job

    # --- release ----------------------------------------------------------------------------------------------------

    def release_prefetched(self) -> None:
        """Release all jobs that have not begun."""
        for job in (*self.prefetched, *self.forming.clear()):
            self.releases.add(job.lease, started=False)
        self.prefetched.clear()

    def release_aged(self, now: float) -> None:
        """Release prefetched jobs whose leases were not extended in time: another worker may have them by now."""
        forming = self.forming.clear()
        waiting = [(self.holdings.good_until(job), job) for job in (*self.prefetched, *forming)]
        self.good_until = min((until for until, _ in waiting if now < until), default=_NEVER)
        self.prefetched.clear()
        kept = [job for until, job in waiting if now < until]
        for until, job in waiting:
            if now >= until:
                self.releases.add(job.lease, started=False)
        self.prefetched.extend(self.forming.add(kept, now) if forming else kept)

    def begin_no_more(self) -> None:
        """Release the jobs that have not begun, and from now on every job that is claimed."""
        self._keeps_claimed = False
        self.release_prefetched()

    def abort_all(self) -> None:
        """Abort all handlers; those that end without an outcome from now on are released."""
        self._releases_unwritten = True
        self._aborts.extend((job, Why.SHUTDOWN) for job in self.running.values())

    def leave_behind(self, *, settling_too: bool) -> None:
        """Release the jobs of handlers that did not end after the abort, and turn the handlers into ghosts.

        They are aborted again, as for a lost lease: the job may soon run elsewhere. A handler whose own transaction is
        open is left only with `settling_too`; its lease is abandoned, since the transaction may still commit.
        """
        for seq, job in list(self.running.items()):
            settling = seq in self.holdings.settling_seqs
            if settling and not settling_too:
                continue
            self._to_ghosts(seq)
            if settling:
                self.abandon([seq])
            elif seq in self._held:
                self.releases.add(job.lease, started=True)
            else:
                self.totals.completed += 1  # settled; only its handler still runs
                continue
            self._aborts.append((job, Why.LEASE_LOST))

    def abandon(self, seqs: Iterable[int]) -> None:
        """Leave leases to expire, since the store cannot be reached."""
        for seq in seqs:
            self.holdings.settled(seq)
            self.totals.abandoned += 1

    # --- state ------------------------------------------------------------------------------------------------------

    def take_aborts(self) -> list[tuple[LeasedJob, Why]]:
        """Return the handlers to abort, each once."""
        aborts, self._aborts = self._aborts, []
        return aborts

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._concurrency - len(self.running) - len(self.ghosts) + self._shared

    @property
    def head(self) -> LeasedJob | None:
        """The job that waits for a slot first, if any."""
        return self.prefetched[0] if self.prefetched else self.forming.head

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        return len(self.prefetched) + len(self.forming)

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs and none is about to."""
        return not (self.running or self.prefetched or self.forming)

    @property
    def is_done(self) -> bool:
        """Whether no lease is left, no handler runs under one, and no flush or release is in flight."""
        return not (self._held or self.running or self.finishes.in_flight or self.releases.in_flight)

    def status(self, phase: WorkerPhase) -> Status:
        """Return a snapshot for display."""
        return Status(
            phase=phase,
            running=tuple(job.id for job in (*self.running.values(), *self.ghosts.values())),
            prefetched=self.waiting,
            buffered=len(self.finishes),
            totals=self.totals.totals(),
        )
