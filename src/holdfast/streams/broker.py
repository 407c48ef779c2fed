"""What a node does with the shares that it is given and asked for: decisions alone, no I/O and no clock of its own.

The node reports to the store and tells the broker what was answered. The broker answers with commands:

```text
   report answered ──▶ share is new here            Begin   consume it from its committed position
                       share is to be released      Drain   end what is being handled, commit, release
                       share is not ours any more   Drop    stop; whatever is still written is refused by the store
                       we are not known any more    Drop all, and join again
```

It may also ask the store what is ours without reporting, when there is a hint that something has changed. A share that
is granted anew while the former consumption of it is still ending is begun when that has ended (`succeeding`).

**Self-fencing.** The leader may take our shares once we have been silent for `ttl + grace` by the store's clock. We do
not know when that is, but we know when we *sent* the last report that succeeded; the store cannot have heard us before
that. So `self_fence`, by a clock of ours that never steps, after that sending we dispatch nothing more and interrupt
what is being handled, and since `self_fence < ttl` we have stopped before anybody else begins. A store that knows for
how long the report stood in its own line says so, and the time counts from the end of that. If the process was frozen
meanwhile, the generation refuses what it writes.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.allocation import AllocationState, Grant, Share, Timing
from holdfast.store.stream_values import Beat, Owned


class Command(msgspec.Struct, frozen=True, tag=True):
    """Something that the node is to do for one grant."""

    grant: Grant


class Begin(Command, frozen=True):
    """Consume the share."""


class Drain(Command, frozen=True):
    """End what is being handled, commit and release; `within` the time given, if there is a deadline."""

    within: timedelta | None


class Drop(Command, frozen=True):
    """Stop: the grant is stale."""


class Broker:
    """The shares that this node holds, as far as it knows."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._held: dict[Share, Owned] = {}
        self._heard: float | None = None  # what the store cannot have heard us before, by our clock

    @property
    def grants(self) -> list[Grant]:
        """What is held."""
        return [owned.grant for owned in self._held.values()]

    def answered(self, beat: Beat, *, sent: float) -> list[Command]:
        """Take in the answer to a report that was sent at `sent`."""
        if not beat.is_known:
            self._heard = None
            return self.drop_all()
        heard = sent + beat.waited.total_seconds()
        self._heard = heard if self._heard is None else max(self._heard, heard)
        return self.told(beat)

    def told(self, beat: Beat) -> list[Command]:
        """Take in what the store says to be ours, as an answer to no report."""
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

    def _compare(self, held: Owned | None, owned: Owned) -> list[Command]:
        is_revoking = owned.state is AllocationState.REVOKING
        if held is None:
            # One that we never began is released by way of an empty drain: there is one way to give a share back.
            return [Begin(owned.grant), Drain(owned.grant, owned.drain_left)] if is_revoking else [Begin(owned.grant)]
        if is_revoking and held.state is not AllocationState.REVOKING:
            return [Drain(owned.grant, owned.drain_left)]
        return []

    def succeeding(self, share: Share) -> list[Command]:
        """Tell what is to be done with a share whose consumption has ended, if it was granted anew meanwhile."""
        owned = self._held.get(share)
        return [] if owned is None else self._compare(None, owned)

    def released(self, grant: Grant) -> None:
        """Note that a grant was given back, or was found to be stale."""
        held = self._held.get(grant.share)
        if held is not None and held.grant == grant:
            del self._held[grant.share]

    def drop_all(self) -> list[Command]:
        """Let go of everything."""
        dropped: list[Command] = [Drop(owned.grant) for owned in self._held.values()]
        self._held.clear()
        return dropped

    def may_dispatch(self, now: float) -> bool:
        """Tell whether nobody else can have been given our shares yet."""
        return self.sure_for(now) > 0.0

    def sure_for(self, now: float) -> float:
        """Tell for how many seconds from now nobody else can be given our shares; 0 if that is not sure any more."""
        if self._heard is None:
            return 0.0
        return max(0.0, self._heard + self._timing.self_fence.total_seconds() - now)
