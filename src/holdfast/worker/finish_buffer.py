"""Outcomes of attempts that are not yet written to the store.

```text
                        delayed
                         ▲ │ later
     locked by others    │ ▼
   ended ──▶ buffer ──▶ flushing ──▶ verdicts
                           │ ▲
               no reply    ▼ │ again
                          unknown
```

A finish that was sent without a reply may have been written. So it is sent again until there is a verdict (the store
answers a repeat with DONE), and a lease reported as lost meanwhile proves nothing: the row may be gone because the
finish was written.

A finish is delayed if a transaction of another client keeps the job's row or key locked. The others are written
meanwhile, and jobs are claimed: that client may be frozen.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.values import Finish
from holdfast.worker.backoff import Backoff
from holdfast.worker.settings import WorkerConfig


class Finishes:
    """The finish buffer, by seq; `InFlight.ended` adds to `buffer` directly, and sets `oldest` if it was empty."""

    __slots__ = ("_pause", "_settings", "backoff", "buffer", "delayed", "flushing", "in_flight", "oldest", "unknown")

    def __init__(self, settings: WorkerConfig) -> None:
        self._settings = settings
        self.backoff = Backoff()
        self.buffer: dict[int, Finish] = {}
        self.unknown: dict[int, Finish] = {}
        self.delayed: dict[int, Finish] = {}
        self._pause = Backoff()
        self.flushing: dict[int, Finish] = {}
        self.in_flight = False
        self.oldest = 0.0

    def __len__(self) -> int:
        return len(self.buffer) + len(self.unknown) + len(self.delayed) + len(self.flushing)

    @property
    def congested(self) -> bool:
        """Whether finishes accumulate, so that no more jobs should be claimed: memory stays bounded."""
        return bool(self.unknown) or max(len(self.buffer), len(self.delayed)) > 2 * self._settings.batch_max

    def batch(self, now: float, *, idle: bool) -> list[Finish] | None:
        """Return the finishes to write now, if any; they are then in flight."""
        if now < self.due_at(idle=idle):
            return None
        most = self._settings.batch_max
        if self.delayed and now >= self._pause.until:
            self.unknown.update(self.delayed)
            self.delayed = {}
        if self.unknown or len(self.buffer) > most:
            self.unknown.update(self.buffer)
            ordered = list(self.unknown.items())
            unsent = self.buffer.keys()
            self.flushing = dict(ordered[:most])
            rest = ordered[most:]
            self.buffer, self.unknown = (
                {seq: finish for seq, finish in rest if seq in unsent},
                {seq: finish for seq, finish in rest if seq not in unsent},
            )
        else:
            self.flushing, self.buffer = self.buffer, {}
        self.in_flight = True
        return list(self.flushing.values())

    def due_at(self, *, idle: bool) -> float:
        """Return when `batch` will next return finishes if no event arrives before."""
        if self.in_flight:
            return float("inf")
        due_at = self._pause.until if self.delayed else float("inf")
        if self.unknown or (self.buffer and (idle or len(self.buffer) >= self._settings.flush_rows)):
            return self.backoff.until
        if self.buffer:
            due_at = min(due_at, self.oldest + self._settings.flush_after)
        return max(due_at, self.backoff.until)

    def answered(self) -> dict[int, Finish]:
        """Process a reply; return, by seq, the finishes that were in flight and whose leases were kept."""
        answered, self.flushing = self.flushing, {}
        self.in_flight = False
        self.backoff.succeeded()
        if not self.delayed:
            self._pause.succeeded()
        return answered

    def delay(self, now: float, finishes: Sequence[Finish]) -> int:
        """Keep finishes that are in flight, and were not written, to send them again; return how many were kept."""
        kept = [finish for finish in finishes if self.flushing.get(finish.lease.seq) is finish]
        for finish in kept:
            self.delayed[finish.lease.seq] = self.flushing.pop(finish.lease.seq)
        self._pause.failed(now)
        return len(kept)

    @property
    def delays(self) -> int:
        """The number of replies in a row that have delayed a finish."""
        return self._pause.failures

    def abandon_delayed(self) -> list[int]:
        """Drop what is delayed; return the seqs."""
        delayed, self.delayed = self.delayed, {}
        return list(delayed)

    def failed(self, now: float) -> None:
        """Keep the finishes that were in flight, to send them again."""
        self.unknown = self.flushing | self.unknown
        self.flushing = {}
        self.in_flight = False
        self.backoff.failed(now)

    def is_sent(self, seq: int) -> bool:
        """Whether the finish was sent at least once."""
        return seq in self.flushing or seq in self.unknown or seq in self.delayed

    def has(self, seq: int) -> bool:
        """Whether the job has ended."""
        return seq in self.buffer or self.is_sent(seq)

    def forget(self, seq: int) -> bool:
        """Drop the finish of a job whose lease is lost; False if there was none."""
        parts = (self.buffer, self.unknown, self.delayed, self.flushing)
        return any(part.pop(seq, None) is not None for part in parts)

    def abandon(self) -> list[int]:
        """Drop everything that is not in flight; return the seqs."""
        seqs = [*self.unknown, *self.buffer]
        self.unknown.clear()
        self.buffer.clear()
        return seqs
