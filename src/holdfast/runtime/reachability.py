"""Reachability: how long this process has had unbroken access to the store. Only then may it declare others dead.

An expired lease has two possible causes: its worker is dead, or its worker could not reach the store. After a store
outage longer than a lease, *every* lease has expired although nearly every worker is alive. A rescue at that moment
would take all running jobs from healthy workers; the fences would still protect the effects, but every job would run
twice. So a rescuer first leaves live workers time to extend. They extend at least every half lease, so after half a
lease of unbroken access, a lease that is still expired belongs to a dead worker. The same holds for the leader of the
stream nodes, which detects failures by missing heartbeats.

```text
              success                            half a lease later: rescue allowed
   broken ──────────────▶ unbroken since t ──────────────────────────────────────────▶
      ▲                         │
      └─────────────────────────┘
        a failed or late call, or no success for longer than the gap
```

The uptime of the *store* does not help: the network between this process and the store may have been down, with the
other workers on this side of the failure. What counts is how long *this process* has reached the store, as evidence for
all processes in the same position. That evidence consists of successful calls, so the rules are:

1. Access begins when the first successful call has returned. The time when it was sent proves less: a call can be sent
   during an outage, wait for a connection, and succeed at the moment when the store is back.
2. Any failed call ends access. So does one with an unknown outcome.
3. Two successes that are more than a gap apart (a quarter lease for workers) do not join: this process was stopped
   (SIGSTOP, a paused machine, a blocked event loop) or a call hung, and an unnoticed outage may have passed in between.
   Likewise, a success that is more than a gap old is not current access.
4. A call that took longer than a gap ends access when it returns, even if other calls succeeded meanwhile: while one
   writer locks the store, reads succeed, but no worker can extend.
5. The store decides, by its own clock, that a lease has expired; only the length of access is measured here, by a
   monotonic clock. A monotonic clock that stops while the machine sleeps hides an outage during the sleep: then the
   job of a healthy worker may run a second time, and its effect still happens once.

An idle or a fully busy worker makes no other calls, so rescue recurs often enough to keep access unbroken.
A rescue must not act on access that has ended while it waited: the store measures that wait itself, and takes nothing
after a long one.
"""

from __future__ import annotations

from holdfast.model.lease_rules import LATE_PARTS

GAP_PER_LEASE = 1 / LATE_PARTS  # how late a call may be, as a fraction of the lease


class Access:
    """The unbroken access so far; every store call of this process is recorded here."""

    __slots__ = ("_began", "_last", "gap")

    def __init__(self, *, gap: float) -> None:
        self.gap = gap
        self._began: float | None = None
        self._last = float("-inf")

    def succeeded(self, now: float) -> None:
        """Record a successful call that has just returned."""
        if self._began is None or now - self._last > self.gap:
            self._began = now
        self._last = now

    def failed(self) -> None:
        """Record a call that failed, was late, or whose outcome is unknown."""
        self._began = None

    def began(self, now: float) -> float | None:
        """Return since when access has been unbroken; None if it is broken now."""
        return None if now - self._last > self.gap else self._began
