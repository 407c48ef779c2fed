"""Outcomes of attempts that are not yet written to the store.

```text
   ended ──▶ buffer ──▶ flushing ──▶ verdicts
                           │ ▲
               no reply    ▼ │ again
                          unknown
```

A finish that was sent without a reply may have been written. So it is sent again until there is a verdict (the store
answers a repeat with DONE), and a lease reported as lost meanwhile proves nothing: the row may be gone because the
finish was written.
"""

from __future__ import annotations

from holdfast.store.values import Finish
from holdfast.worker.backoff import Backoff
from holdfast.worker.settings import WorkerConfig


class Finishes:
    """The finish buffer, by seq; `InFlight.ended` adds to `buffer` directly, and sets `oldest` if it was empty."""

    __slots__ = ("_settings", "backoff", "buffer", "flushing", "in_flight", "oldest", "unknown")

    def __init__(self, settings: WorkerConfig) -> None:
        self._settings = settings
        self.backoff = Backoff()
        self.buffer: dict[int, Finish] = {}
        self.unknown: dict[int, Finish] = {}
        self.flushing: dict[int, Finish] = {}
        self.in_flight = False
        self.oldest = 0.0

    def __len__(self) -> int:
        return len(self.buffer) + len(self.unknown) + len(self.flushing)

    @property
    def congested(self) -> bool:
        """Whether finishes accumulate, so that no more jobs should be claimed: memory stays bounded."""
        return bool(self.unknown) or len(self.buffer) > 2 * self._settings.batch_max

    def batch(self, now: float, *, idle: bool) -> list[Finish] | None:
        """Return the finishes to write now, if any; they are then in flight."""
        if now < self.due_at(idle=idle):
            return None
        most = self._settings.batch_max
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
        if self.in_flight or not (self.buffer or self.unknown):
            return float("inf")
        if idle or self.unknown or len(self.buffer) >= self._settings.flush_rows:
            return self.backoff.until
        return max(self.oldest + self._settings.flush_after, self.backoff.until)

    def answered(self) -> dict[int, Finish]:
        """Process a reply; return, by seq, the finishes that were in flight and whose leases were kept."""
        answered, self.flushing = self.flushing, {}
        self.in_flight = False
        self.backoff.succeeded()
        return answered

    def failed(self, now: float) -> None:
        """Keep the finishes that were in flight, to send them again."""
        self.unknown = self.flushing | self.unknown
        self.flushing = {}
        self.in_flight = False
        self.backoff.failed(now)

    def is_sent(self, seq: int) -> bool:
        """Whether the finish was sent at least once."""
        return seq in self.flushing or seq in self.unknown

    def has(self, seq: int) -> bool:
        """Whether the job has ended."""
        return seq in self.buffer or self.is_sent(seq)

    def forget(self, seq: int) -> bool:
        """Drop the finish of a job whose lease is lost; False if there was none."""
        return any(part.pop(seq, None) is not None for part in (self.buffer, self.unknown, self.flushing))

    def abandon(self) -> list[int]:
        """Drop everything that is not in flight; return the seqs."""
        seqs = [*self.unknown, *self.buffer]
        self.unknown.clear()
        self.buffer.clear()
        return seqs
