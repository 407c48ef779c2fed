"""Where every job is that this worker has claimed, from the claim until the store's word that it is no longer ours.

```text
             claimed                take                 ended                 flushed
   (store) ──────────▶ prefetched ────────▶ running ───────────────▶ buffer ───────────▶ (store)
                           │                   │ ended(None): settled in its own transaction ──▶ (store)
                           │ stop, patience    │ stop, drain_timeout
                           ▼                   ▼
                       releases: unstarted   releases: started ── released ──▶ (store)
```

A job is *held* all the way (see `holdings`), in exactly one of these places. When its lease is lost it is held no more,
and its handler, if it runs, becomes a *ghost*: told to abort, its end ignored, its slot taken until it does end.

The per-job methods, `take` and `ended`, do a fixed handful of dict and deque operations; all else is per batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.outcome import Cancelled, Outcome
from holdfast.store.values import Finish
from holdfast.worker.decision import Status, Why, WorkerPhase
from holdfast.worker.finish_buffer import Finishes
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.release_buffer import Releases
from holdfast.worker.settings import WorkerConfig
from holdfast.worker.totals import TotalsCounter


class InFlight:
    """The jobs of one worker, and the moves between their places."""

    def __init__(self, settings: WorkerConfig) -> None:
        self._settings = settings
        self._concurrency = settings.concurrency
        self._flush_rows = settings.flush_rows
        self.holdings = HeldLeases(lease=settings.lease, extend_at=settings.extend_at)
        self._held = self.holdings.jobs
        self._prefetched: deque[LeasedJob] = deque()
        self._running: dict[int, LeasedJob] = {}
        self._ghosts: dict[tuple[int, int], LeasedJob] = {}  # by seq and fence
        self._cancel_told: set[tuple[int, int]] = set()
        self._aborts: list[tuple[LeasedJob, Why]] = []
        self._finishes = Finishes(settings)
        self._releases = Releases()
        self._tally = TotalsCounter()
        self._endings = 0
        self._low = 0  # so few prefetched jobs that more should be claimed
        self._good_until = float("inf")  # when the first of the prefetched leases may no longer be begun under
        self._phase = WorkerPhase.RUNNING

    def _hold(self, jobs: Sequence[LeasedJob], sent_at: float) -> None:
        """Take in the jobs of a claim."""
        seqs = [job.seq for job in jobs]
        if not (self._held.keys().isdisjoint(seqs) and self._running.keys().isdisjoint(seqs)):
            for seq in seqs:
                self._supersede(seq)
            self._sweep()
        self.holdings.add(jobs, sent_at)
        if self._phase is WorkerPhase.RUNNING:
            self._prefetched.extend(jobs)
            if jobs:  # all were claimed at once
                self._good_until = min(self._good_until, self.holdings.good_until(jobs[0]))
        else:
            for job in jobs:
                self._releases.add(job.lease, started=False)

    def take(self) -> LeasedJob | None:
        """Return the next job to begin, now running; None if there is none or no slot is free.

        Whose lease may be over is known to `decide`: call that first, and again when time has passed.
        """
        running = self._running
        prefetched = self._prefetched
        if len(running) + len(self._ghosts) >= self._concurrency:
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

    def ended(self, now: float, job: LeasedJob, outcome: Outcome | None) -> bool:
        """Note that a handler has ended; return whether `decide` should be called before the next job is begun.

        None: there is no finish to write, since the handler's own transaction has settled the job or, after an abort
        with SHUTDOWN, since the handler was broken off. `decide` is due, besides, when `take` has nothing more and when
        `Decision.wait` has passed.
        """
        seq = job.seq
        if self._running.get(seq) is not job:
            self._ghost_ended(job)
            return True
        del self._running[seq]
        self._endings += 1
        if self._cancel_told:
            self._cancel_told.discard((seq, job.fence))
        if outcome is None or seq not in self._held:
            self._ended_unwritten(job)
            return True
        if self.holdings.settling_seqs:
            self.holdings.unsettled(seq)
        finishes = self._finishes
        buffer = finishes.buffer
        if not buffer:
            finishes.oldest = now
        buffer[seq] = Finish(Lease(job.id, seq, job.fence), outcome)
        is_full = len(buffer) >= self._flush_rows and not finishes.in_flight
        return is_full or len(self._prefetched) <= self._low

    def _ghost_ended(self, job: LeasedJob) -> None:
        if self._ghosts.pop((job.seq, job.fence), None) is None:
            raise ValueError(f"job {job.id} does not run here under fence {job.fence}: its end was reported twice")
        self._endings += 1
        if job.seq not in self._held:
            self.holdings.unsettled(job.seq)

    def _ended_unwritten(self, job: LeasedJob) -> None:
        if self._phase is WorkerPhase.RELEASING and job.seq in self._held:
            self.holdings.unsettled(job.seq)
            self._releases.add(job.lease, started=True)  # if it was settled after all, the store answers LOST
        else:
            self.holdings.settled(job.seq)
            self._tally.completed += 1

    def lost(self, now: float, leases: Iterable[Lease]) -> None:
        """Give up leases that the store called stale: no finish is written, and handlers are aborted.

        What is being settled, flushed or released at this moment is left to the answer to that: the lease may be
        gone because it succeeded.
        """
        del now
        for lease in leases:
            seq = lease.seq
            self.holdings.stale.pop(seq, None)
            job = self._held.get(seq)
            unclear = seq in self.holdings.settling_seqs or self._finishes.is_sent(seq) or self._releases.is_flying(seq)
            if job is not None and job.fence == lease.fence and not unclear:
                self._give_up(seq)
        self._sweep()

    def cancel_asked(self, now: float, leases: Iterable[Lease]) -> None:
        """Abort handlers whose jobs somebody asked to cancel, once each; a job not yet begun ends as cancelled."""
        for lease in leases:
            seq = lease.seq
            job = self._held.get(seq)
            if job is None or job.fence != lease.fence:
                continue
            if seq in self._running:
                if (seq, job.fence) not in self._cancel_told:
                    self._cancel_told.add((seq, job.fence))
                    self._aborts.append((job, Why.CANCEL_ASKED))
            elif not (self._finishes.has(seq) or seq in self._releases):
                if not self._finishes.buffer:
                    self._finishes.oldest = now
                self._finishes.buffer[seq] = Finish(lease, Cancelled("asked to cancel before its handler began"))
        self._sweep()

    def _supersede(self, seq: int) -> None:
        """Clear the place of a job that was claimed anew, here, under a later fence."""
        if seq in self._held:
            self._give_up(seq)
        elif seq in self._running:  # settled, run again by a person's word, and the first handler still goes on
            self._to_ghosts(seq)
            self._tally.completed += 1

    def _give_up(self, seq: int) -> None:
        """Hold a job no longer, wherever it is; of the prefetched ones `_sweep` takes it out."""
        job = self._held.pop(seq, None)
        if job is None:  # its handler's thread has settled it in this very moment
            return
        self.holdings.settling_seqs.discard(seq)
        self.holdings.stale.pop(seq, None)
        if seq in self._running:
            self._to_ghosts(seq)
            self._aborts.append((job, Why.LEASE_LOST))
        elif seq in self._finishes.flushing:
            self._finishes.forget(seq)  # its verdict still comes, and is counted then
            return
        else:
            self._finishes.forget(seq)
            self._releases.forget(seq)
        self._tally.lost += 1

    def _sweep(self) -> None:
        """Take out of the prefetched jobs those that are held no more or have ended; once per batch, not per job."""
        held, buffer, prefetched = self._held, self._finishes.buffer, self._prefetched
        waiting = [job for job in prefetched if held.get(job.seq) is job and job.seq not in buffer]
        if len(waiting) != len(prefetched):
            prefetched.clear()
            prefetched.extend(waiting)

    def _to_ghosts(self, seq: int) -> None:
        job = self._running.pop(seq)
        self._cancel_told.discard((seq, job.fence))
        self._ghosts[seq, job.fence] = job

    def _release_prefetched(self) -> None:
        for job in self._prefetched:
            self._releases.add(job.lease, started=False)
        self._prefetched.clear()

    def _release_aged(self, now: float) -> None:
        """Give back what was not extended in time to be begun: by now it may be another's, which the store knows."""
        waiting = [(self.holdings.good_until(job), job) for job in self._prefetched]
        self._good_until = min((until for until, _ in waiting if now < until), default=float("inf"))
        self._prefetched.clear()
        for until, job in waiting:
            if now < until:
                self._prefetched.append(job)
            else:
                self._releases.add(job.lease, started=False)

    def _abandon(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.holdings.settled(seq)
            self._tally.abandoned += 1

    def status(self) -> Status:
        """Return where the worker stands."""
        return Status(
            phase=self._phase,
            running=tuple(job.id for job in (*self._running.values(), *self._ghosts.values())),
            prefetched=len(self._prefetched),
            buffered=len(self._finishes),
            totals=self._tally.totals(),
        )
