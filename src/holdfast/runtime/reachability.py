"""How long this process has had unbroken access to the store, which is what makes it fit to call others dead.

A lease that has expired says one of two things: its worker is dead, or its worker could not reach the store. After an
outage of the store longer than a lease *every* lease has expired and nearly every worker lives. Whoever rescued in
that moment would take all running jobs from healthy workers; the fences keep the effects right, but everything would
run twice. So a rescuer first gives the living the time to extend. They try at least every half lease, so after half a
lease of unbroken access a lease that is still expired belongs to a worker that is gone. The same goes for the leader of
the nodes of streams, who judges by their silence.

How long the *store* has been up is of no use: a network between us and it may have been cut, with the other workers on
our side of the cut. What counts is how long *we* have reached it, as a witness for those who sit where we sit. And what
we know of it is made of calls that succeeded, so the rules are:

1. Access begins when the first successful call has returned. When it was sent proves less: a call can be sent into an
   outage, wait for a connection, and succeed in the instant when the store is back.
2. Any failed call ends it. So does one of unknown outcome.
3. Two successes more than a gap apart (a quarter lease for workers) do not join: this process was stopped (SIGSTOP, a
   paused machine, a blocked loop), or a call hung, and an outage may have come and gone between them unseen. Likewise a
   success that is more than a gap old is no present access.
4. A call that took longer than a gap ends it too, when it is answered, even if others were answered in between: where
   one writer holds the store, those who only read go on, and nobody extends.
5. Reading another's lease as expired needs no clock of ours; only the length of our access is measured here, by a
   monotonic clock. One that stands still while the machine sleeps does not show an outage that came and went meanwhile:
   then a healthy worker's job may run a second time, and still takes effect once.

An idle or a fully busy worker makes no other calls, so rescue itself recurs often enough to keep access unbroken.
A rescue must not outlive what it was sent with: the caller bounds it by `Access.gap` and reports a failure past that.
"""

from __future__ import annotations

from holdfast.model.lease_rules import LATE_PARTS

GAP_PER_LEASE = 1 / LATE_PARTS


class Access:
    """The unbroken access so far, told of every store call of this process."""

    __slots__ = ("_began", "_last", "gap")

    def __init__(self, *, gap: float) -> None:
        self.gap = gap
        self._began: float | None = None
        self._last = float("-inf")

    def succeeded(self, now: float) -> None:
        """Note a call that has just returned."""
        if self._began is None or now - self._last > self.gap:
            self._began = now
        self._last = now

    def failed(self) -> None:
        """Note a call that failed, or whose outcome is unknown."""
        self._began = None

    def began(self, now: float) -> float | None:
        """Return since when access is unbroken; None if it is broken at present."""
        return None if now - self._last > self.gap else self._began
