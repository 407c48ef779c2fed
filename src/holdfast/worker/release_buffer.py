"""Leases to release. They are extended until the store has confirmed the release."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.job import Lease
from holdfast.worker.backoff import Backoff

MAX_ATTEMPTS = 5
"""After this many failures in a row a stopping worker leaves leases to expire."""


class Releases:
    """The leases to release, of jobs that have begun and that have not; one batch in flight."""

    __slots__ = ("_calls", "_flying", "_started", "_unstarted", "any_started", "backoff")

    def __init__(self) -> None:
        self.backoff = Backoff()
        self.any_started = False  # whether a handler was ever aborted
        self._unstarted: dict[int, Lease] = {}
        self._started: dict[int, Lease] = {}
        self._flying: dict[int, bool] = {}  # whether it was started
        self._calls = 0  # in flight, even if all their leases were superseded

    def __len__(self) -> int:
        return len(self._unstarted) + len(self._started) + len(self._flying)

    def __contains__(self, seq: int) -> bool:
        return seq in self._unstarted or seq in self._started or seq in self._flying

    def add(self, lease: Lease, *, started: bool) -> None:
        """Release this lease with the next batch."""
        self.any_started |= started
        (self._started if started else self._unstarted)[lease.seq] = lease

    def batch(self, now: float) -> tuple[list[Lease], list[Lease]]:
        """Return the unstarted and the started leases to release now; they are then in flight."""
        if now < self.due_at():
            return [], []
        unstarted, started = list(self._unstarted.values()), list(self._started.values())
        self._flying = {lease.seq: False for lease in unstarted}
        self._flying.update({lease.seq: True for lease in started})
        self._calls = bool(unstarted) + bool(started)
        self._unstarted.clear()
        self._started.clear()
        return unstarted, started

    def due_at(self) -> float:
        """Return when `batch` will next return leases if no event arrives before."""
        if self._calls or not (self._unstarted or self._started):
            return float("inf")
        return self.backoff.until

    @property
    def in_flight(self) -> bool:
        """Whether a call is in flight."""
        return self._calls > 0

    def is_flying(self, seq: int) -> bool:
        """Whether the release of this lease is in flight."""
        return seq in self._flying

    def answered(self, leases: Iterable[Lease]) -> list[int]:
        """Process leases that were released, or lost before; return the seqs to drop.

        A job that was claimed again meanwhile, under a later fence, is not among them.
        """
        self._calls -= 1
        self.backoff.succeeded()
        return [lease.seq for lease in leases if self._flying.pop(lease.seq, None) is not None]

    def failed(self, now: float, leases: Iterable[Lease]) -> None:
        """Keep leases, to release them later."""
        self._calls -= 1
        self.backoff.failed(now)
        for lease in leases:
            started = self._flying.pop(lease.seq, None)
            if started is not None:
                self.add(lease, started=started)

    def forget(self, seq: int) -> bool:
        """Drop a lease that is lost; False if it was not here."""
        return any(part.pop(seq, None) is not None for part in (self._unstarted, self._started, self._flying))

    def abandon(self) -> list[int]:
        """Drop everything that is not in flight; return the seqs. These leases will expire."""
        seqs = [*self._unstarted, *self._started]
        self._unstarted.clear()
        self._started.clear()
        return seqs
