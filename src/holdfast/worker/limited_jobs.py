"""The jobs of a worker that limits concern: they hold a slot of their limit from the claim on, so they begin first.

A worker that prefetches has no free slot when it claims. So it also claims limited jobs for slots that will be free
soon, but never more than it has slots: none of them waits behind a prefetched job.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.worker.in_flight import InFlight


class LimitedJobs:
    """Which of the jobs in flight limits concern."""

    def __init__(self, jobs: InFlight, concurrency: int) -> None:
        self._jobs = jobs
        self._concurrency = concurrency
        self._seqs: set[int] = set()

    def claimed(self, seqs: Collection[int]) -> None:
        """Add jobs that were just claimed, and put them before the prefetched ones that no limit concerns."""
        self._seqs.update(seqs)
        waiting = self._jobs.prefetched
        first = sorted(waiting, key=lambda job: job.seq not in self._seqs)
        waiting.clear()
        waiting.extend(first)

    def any_ended(self) -> bool:
        """Return whether a lease of such a job has ended since the last call: its limit may have room."""
        ended = self._seqs - self._jobs.holdings.jobs.keys()
        self._seqs -= ended
        return bool(ended)

    @property
    def room(self) -> int:
        """How many more of them there are slots for, once the other handlers have ended."""
        jobs = self._jobs
        most = jobs.forming.room(self._concurrency) if jobs.forming.sizes else self._concurrency
        return most - sum(not jobs.finishes.has(seq) for seq in self._seqs)
