"""The leases that a worker holds, shared with the thread that extends them.

A lease is held from the claim until the store confirms its end: while the job is prefetched or running, its finish is
buffered or being written, it is being released, or the handler's own transaction is settling it. All these leases are
extended; if the lease of a buffered finish expired, the work would be lost.

**Threads.** There is no lock: each container has one writer, and where two threads use the same one, each access is a
single operation on a builtin with int keys (`d[k] = v`, `d.get`, `d.pop`, `d.copy`, `s.add`, `s.discard`), which is
atomic in CPython.

```text
   jobs, sent    written by the loop                copied, read by the extending thread
   settling      written by loop or handler         read by both
   stale         written by the extending thread    read, and removed, by the loop
   _extended     written by the extending thread    read by both
```

The extending thread may see a slightly old state. That is harmless: the store answers the extension of a lease that has
just ended with lost, and a verdict for a lease that is no longer held under that fence is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.job import Lease, LeasedJob
from holdfast.model.lease_rules import GOOD_FOR


class HeldLeases:
    """The held leases, by `seq`, and since when: from when the claim or the last extension was *sent*.

    Not from the reply, because the store's clock started the lease at some time between the request and its reply.
    """

    __slots__ = ("_extended", "_good_for", "_prune_at", "_safe", "jobs", "sent", "settling_seqs", "stale")

    def __init__(self, *, lease: float, extend_at: float) -> None:
        self._safe = lease * extend_at
        self._good_for = lease * GOOD_FOR
        self._prune_at = 64
        self._extended: dict[int, tuple[int, float]] = {}
        self.jobs: dict[int, LeasedJob] = {}
        self.sent: dict[int, float] = {}  # by fence: all jobs of a claim share it
        self.settling_seqs: set[int] = set()
        self.stale: dict[int, int] = {}  # seq: fence that the store reported as stale, until the loop has processed it

    def __len__(self) -> int:
        return len(self.jobs)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def add(self, jobs: Sequence[LeasedJob], sent_at: float) -> None:
        """Hold the jobs of one claim, sent at `sent_at`."""
        for fence in {job.fence for job in jobs}:
            self.sent[fence] = sent_at  # before the jobs: one without a time would be extended needlessly
        if self.settling_seqs:  # left by a former attempt
            self.settling_seqs.difference_update([job.seq for job in jobs])
        self.jobs.update({job.seq: job for job in jobs})
        if len(self.sent) > self._prune_at:
            held = {job.fence for job in self.jobs.values()}
            for fence in self.sent.keys() - held:
                del self.sent[fence]
            self._prune_at = 64 + 2 * len(self.sent)

    def drop(self, seq: int) -> None:
        """Remove a job."""
        self.jobs.pop(seq, None)

    def good_until(self, job: LeasedJob) -> float:
        """Return until when a handler may be begun under this lease, given its extensions so far."""
        return self._last(job) + self._good_for

    # --- the loop or the handler's thread ---------------------------------------------------------------------------

    def settling(self, seq: int) -> None:
        """Record that the handler's own transaction is about to settle the job: from now on, ignore verdicts of lost.

        The extending thread may find the row gone before the handler receives the reply to its commit.
        """
        self.settling_seqs.add(seq)

    def settled(self, seq: int) -> None:
        """Record that the transaction has committed: the job is no longer held, though its handler may continue."""
        self.jobs.pop(seq, None)
        self.settling_seqs.discard(seq)

    def unsettled(self, seq: int) -> None:
        """Record that the transaction was rolled back: the job is held as before."""
        self.settling_seqs.discard(seq)

    def of(self, job: LeasedJob) -> HeldLease:
        """Return the lease of one attempt, through which its handler reports its own transaction."""
        return HeldLease(self, job)

    def of_many(self, jobs: Sequence[LeasedJob]) -> HeldBatch:
        """Return the leases of a batch, through which its handler reports its own transaction."""
        return HeldBatch(self, list(jobs))

    # --- the extending thread ---------------------------------------------------------------------------------------

    def due(self, now: float) -> list[Lease]:
        """Return the leases to extend now: those whose last extension is older than the safe fraction of the lease."""
        jobs = self.jobs.copy()
        self._extended = {seq: when for seq, when in self._extended.items() if seq in jobs}
        before = now - self._safe
        return [
            Lease(job.id, seq, job.fence)
            for seq, job in jobs.items()
            if self._last(job) <= before and self.stale.get(seq) != job.fence
        ]

    def _last(self, job: LeasedJob) -> float:
        """Return when the claim, or the last extension of this lease that succeeded, was sent."""
        fence, sent_at = self._extended.get(job.seq, (0, 0.0))
        return sent_at if fence == job.fence else self.sent.get(job.fence, float("-inf"))

    def extended(self, leases: Iterable[Lease], sent_at: float) -> None:
        """Record leases that the store has extended by a request sent at `sent_at`; never for one that failed."""
        for lease in leases:
            self._extended[lease.seq] = (lease.fence, sent_at)

    def margins(self, leases: Iterable[Lease], now: float, lease: float) -> list[tuple[str, float]]:
        """Return the queue of each lease that is still held, and the seconds that are left of it, of `lease` in all."""
        held = [self.jobs.get(one.seq) for one in leases]
        return [(job.queue, lease - (now - self._last(job))) for job in held if job is not None]

    def lost(self, leases: Iterable[Lease]) -> None:
        """Mark leases that the store reported as stale, so that none of their jobs is begun.

        The caller then passes the same leases to `Machine.lost` in the loop, which removes them.
        """
        for lease in leases:
            job = self.jobs.get(lease.seq)
            if job is not None and job.fence == lease.fence and lease.seq not in self.settling_seqs:
                self.stale[lease.seq] = lease.fence


class HeldLease:
    """The lease of one attempt, for reports of its handler; ignored once another attempt at the job is held.

    A handler whose lease was lost may run on for a while, and the same worker may hold the next attempt at its job.
    """

    __slots__ = ("_holdings", "_job")

    def __init__(self, holdings: HeldLeases, job: LeasedJob) -> None:
        self._holdings = holdings
        self._job = job

    def settling(self, seq: int) -> None:
        """Record that the handler's own transaction is about to settle the job."""
        if self._held_fence() == self._job.fence:
            self._holdings.settling(seq)

    def settled(self, seq: int) -> None:
        """Record that the transaction has committed."""
        if self._held_fence() in {self._job.fence, None}:
            self._holdings.settled(seq)

    def unsettled(self, seq: int) -> None:
        """Record that the transaction was rolled back."""
        if self._held_fence() in {self._job.fence, None}:
            self._holdings.unsettled(seq)

    def _held_fence(self) -> int | None:
        held = self._holdings.jobs.get(self._job.seq)
        return None if held is None else held.fence


class HeldBatch:
    """The leases of a batch, for reports of its handler; jobs that are held by a later attempt are left out."""

    __slots__ = ("_holdings", "_jobs")

    def __init__(self, holdings: HeldLeases, jobs: Sequence[LeasedJob]) -> None:
        self._holdings = holdings
        self._jobs = jobs

    def settling(self) -> None:
        """Record that the transaction is about to end the jobs."""
        held = self._holdings.jobs
        self._holdings.settling_seqs.update([job.seq for job in self._jobs if held.get(job.seq) is job])

    def settled(self) -> None:
        """Record that it has committed."""
        held = self._holdings.jobs
        seqs = [job.seq for job in self._jobs if held.get(job.seq, job) is job]
        for seq in seqs:
            held.pop(seq, None)
        self._holdings.settling_seqs.difference_update(seqs)

    def unsettled(self) -> None:
        """Record that it was rolled back."""
        held = self._holdings.jobs
        self._holdings.settling_seqs.difference_update([job.seq for job in self._jobs if held.get(job.seq, job) is job])
