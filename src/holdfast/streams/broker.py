"""The broker: decides what a node does with the shares that it is granted or asked to release; no I/O and no clock.

The node sends heartbeats to the store and passes the answers to the broker. The broker returns commands:

```text
   answer ──▶ share is new here            Begin   consume it from its committed position
              share is being revoked       Drain   finish the current event or batch, commit, release
              share is no longer ours      Drop    stop; the store refuses any later write
              the node is not registered   Drop all, and join again
```

A share that is granted again while its former share consumer is still ending begins when that one has ended
(`succeeding`).

**Self-fencing.** The leader may seize the shares of a node that was silent for `ttl + grace` by the store's clock. The
node cannot read that clock, but it knows when it *sent* its last successful heartbeat, and the store cannot have
received that one earlier. So the node stops handling, and interrupts running handlers, when `self_fence` has passed
since then on its local monotonic clock. Since `self_fence < ttl`, it has stopped before another node begins. If the
store reports how long the heartbeat waited in its queue, the time counts from the end of that wait. If the process was
frozen meanwhile, the store refuses its writes by their generation.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.allocation import Grant, Share, ShareState, Timing
from holdfast.store.stream_values import OwnedShare, OwnedShares


class Command(msgspec.Struct, frozen=True, tag=True):
    """A command of the broker about one grant."""

    grant: Grant


class Begin(Command, frozen=True):
    """Consume the share."""


class Drain(Command, frozen=True):
    """Finish the current event or batch, commit and release; `within` this time, if there is a deadline."""

    within: timedelta | None


class Drop(Command, frozen=True):
    """Stop: the grant is stale."""


class _LastAnswer(msgspec.Struct, frozen=True):
    """The store's last answer: the shares granted to this node, and since when (local clock) the node may be silent."""

    since: float
    grants: frozenset[Grant]


class Broker:
    """The shares of this node, according to the store's last answer."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._held: dict[Share, OwnedShare] = {}
        self._answer: _LastAnswer | None = None  # replaced as a whole by the heartbeat thread

    @property
    def grants(self) -> list[Grant]:
        """The grants that this node holds."""
        return [owned.grant for owned in self._held.values()]

    def answered(self, answer: OwnedShares, *, sent: float | None) -> None:
        """Record the answer to a heartbeat sent at `sent`, or to a read (None); callable from one other thread.

        From now on nothing is handled under a grant that the answer does not list, even if the event loop has not
        processed the answer yet.
        """
        former = self._answer
        if not answer.is_known or (former is None and sent is None):
            self._answer = None
            return
        since = [] if former is None else [former.since]
        if sent is not None:
            since.append(sent + answer.waited.total_seconds())
        self._answer = _LastAnswer(max(since), frozenset(owned.grant for owned in answer.owned))

    def compare(self, answer: OwnedShares) -> list[Command]:
        """Compare the store's answer with the shares held here; return the commands that make them match."""
        if not answer.is_known:
            return self.drop_all()
        now_owned = {owned.grant.share: owned for owned in answer.owned}
        commands: list[Command] = []
        for share, held in list(self._held.items()):
            owned = now_owned.get(share)
            if owned is None or owned.grant != held.grant:
                del self._held[share]
                commands.append(Drop(held.grant))
        for share, owned in now_owned.items():
            commands += self._compare(self._held.get(share), owned)
            self._held[share] = owned
        return commands

    def _compare(self, held: OwnedShare | None, owned: OwnedShare) -> list[Command]:
        is_revoking = owned.state is ShareState.REVOKING
        if held is None:
            # A share that was never begun is begun and drained, so that there is only one way to release a share.
            return [Begin(owned.grant), Drain(owned.grant, owned.drain_left)] if is_revoking else [Begin(owned.grant)]
        if is_revoking and held.state is not ShareState.REVOKING:
            return [Drain(owned.grant, owned.drain_left)]
        return []

    def succeeding(self, share: Share) -> list[Command]:
        """Return the commands for a share whose consumer has ended, if it was granted again meanwhile."""
        owned = self._held.get(share)
        return [] if owned is None else self._compare(None, owned)

    def released(self, grant: Grant) -> None:
        """Remove a grant that was released, or found to be stale."""
        held = self._held.get(grant.share)
        if held is not None and held.grant == grant:
            del self._held[grant.share]

    def drop_all(self) -> list[Command]:
        """Drop all shares."""
        dropped: list[Command] = [Drop(owned.grant) for owned in self._held.values()]
        self._held.clear()
        return dropped

    def may_handle(self, grant: Grant, now: float) -> bool:
        """Return whether it is certain that no other node owns this share yet."""
        last = self._answer
        return last is not None and grant in last.grants and self.sure_for(now) > 0.0

    def sure_for(self, now: float) -> float:
        """Return for how many seconds no other node can be granted this node's shares; 0 if that is not certain."""
        last = self._answer
        if last is None:
            return 0.0
        return max(0.0, last.since + self._timing.self_fence.total_seconds() - now)
