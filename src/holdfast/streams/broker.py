"""What a node does with the shares that it is granted and asked to release: decisions alone, without I/O or clock.

The node sends heartbeats to the store and passes the answers to the broker. The broker returns commands:

```text
   answer ──▶ share is new here            Begin   consume it from its committed position
              share is to be released      Drain   end what is being handled, commit, release
              share is not ours any more   Drop    stop; what is still written is refused by the store
              the node is not known        Drop all, and join again
```

A share that is granted again while its former consumer is still ending is begun when that has ended (`succeeding`).

**Self-fencing.** The leader may take our shares once we have been silent for `ttl + grace` by the store's clock. We do
not know when that is, but we know when we *sent* the last heartbeat that succeeded; the store cannot have heard us
before that. So `self_fence`, by a clock of ours that never steps, after that sending we handle nothing more and
interrupt what is being handled. Since `self_fence < ttl` we have stopped before another node begins. A store that knows
how long the heartbeat waited in its own queue says so, and the time counts from the end of that wait. If the process
was frozen meanwhile, the generation refuses what it writes.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.allocation import AllocationState, Grant, Share, Timing
from holdfast.store.stream_values import OwnedShare, OwnedShares


class Command(msgspec.Struct, frozen=True, tag=True):
    """What the node is to do for one grant."""

    grant: Grant


class Begin(Command, frozen=True):
    """Consume the share."""


class Drain(Command, frozen=True):
    """End what is being handled, commit and release; `within` the time given, if there is a deadline."""

    within: timedelta | None


class Drop(Command, frozen=True):
    """Stop: the grant is stale."""


class _Heard(msgspec.Struct, frozen=True):
    """What the store last said: the shares granted to us, and since when, by our clock, it may have heard nothing."""

    since: float
    grants: frozenset[Grant]


class Broker:
    """The shares that this node holds, as far as it knows."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._held: dict[Share, OwnedShare] = {}
        self._heard: _Heard | None = None  # written by the heartbeat's thread, as a whole

    @property
    def grants(self) -> list[Grant]:
        """What is held."""
        return [owned.grant for owned in self._held.values()]

    def heard(self, beat: OwnedShares, *, sent: float | None) -> None:
        """Note the answer to a heartbeat that was sent at `sent`, or to a look (None); callable from one other thread.

        From now on nothing is handled under a grant that the answer does not name, whatever the event loop has done
        about it until now.
        """
        former = self._heard
        if not beat.is_known or (former is None and sent is None):
            self._heard = None
            return
        since = [] if former is None else [former.since]
        if sent is not None:
            since.append(sent + beat.waited.total_seconds())
        self._heard = _Heard(max(since), frozenset(owned.grant for owned in beat.owned))

    def compare(self, beat: OwnedShares) -> list[Command]:
        """Compare the store's answer with what the node holds; return what is to be done about the difference."""
        if not beat.is_known:
            return self.drop_all()
        now_owned = {owned.grant.share: owned for owned in beat.owned}
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
        is_revoking = owned.state is AllocationState.REVOKING
        if held is None:
            # A share that was never begun is released by way of an empty drain: there is one way to release a share.
            return [Begin(owned.grant), Drain(owned.grant, owned.drain_left)] if is_revoking else [Begin(owned.grant)]
        if is_revoking and held.state is not AllocationState.REVOKING:
            return [Drain(owned.grant, owned.drain_left)]
        return []

    def succeeding(self, share: Share) -> list[Command]:
        """Return what is to be done with a share that has ended here, if it was granted again meanwhile."""
        owned = self._held.get(share)
        return [] if owned is None else self._compare(None, owned)

    def released(self, grant: Grant) -> None:
        """Note that a grant was released, or was found to be stale."""
        held = self._held.get(grant.share)
        if held is not None and held.grant == grant:
            del self._held[grant.share]

    def drop_all(self) -> list[Command]:
        """Drop all shares."""
        dropped: list[Command] = [Drop(owned.grant) for owned in self._held.values()]
        self._held.clear()
        return dropped

    def may_handle(self, grant: Grant, now: float) -> bool:
        """Tell whether no other node can have been granted this share yet."""
        heard = self._heard
        return heard is not None and grant in heard.grants and self.sure_for(now) > 0.0

    def sure_for(self, now: float) -> float:
        """Return for how many seconds from now no other node can be granted our shares; 0 if that is not sure."""
        heard = self._heard
        if heard is None:
            return 0.0
        return max(0.0, heard.since + self._timing.self_fence.total_seconds() - now)
