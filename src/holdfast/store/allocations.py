"""The port's verbs for nodes, leadership and allocation.

Safety rests on the generation of each allocation alone. Two leaders at once, a node that thinks itself alive, a lost
notification: all of them cost time, never an effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.model.allocation import Leadership, Move, NodeKey, Timing
from holdfast.store.stream_values import Beat, LeaderView, NewNode, NodeView, Survey, Transition


class AllocationStore(Protocol):
    """Who is there, who leads, who owns what. Every method is one atomic step of the store, and safe to repeat.

    All times are judged by the store's clock.
    """

    async def join(self, node: NewNode) -> None:
        """Make a node known, or a new incarnation of it.

        1. Shares of an older incarnation become free at once, with a larger generation, meant for the node itself
           (`target`): a quick restart gets them back, and the older process, if it lives, is refused. It counts in
           `losses` as a seizure does: an event that kills its process is noticed however quickly that is restarted.
        2. A repeat by the same incarnation changes nothing but the time: it counts as a beat with its timing.
        3. A new incarnation is not draining, whatever the older one was.
        """
        ...

    async def beat(self, node: NodeKey, timing: Timing) -> Beat:
        """Report that a node lives, and return what it owns.

        1. `is_known` is False if the node is not registered, or under another incarnation: stop all, then join.
        2. The shares are those granted to this incarnation, revoking ones included, in order.
        3. A node that was silent for long is alive again if nobody has taken its shares meanwhile.
        4. It does not stand behind transactions of handlers, as far as the store has a say in that: a node whose report
           comes late loses its shares.
        """
        ...

    async def owned(self, node: NodeKey) -> Beat:
        """Return what `beat` would, and write nothing: it counts as no report."""
        ...

    async def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:
        """Take a node away: what it still owns becomes free, with a larger generation. A stale incarnation: nothing.

        A node that leaves by itself does not make `losses` grow. One that is known to be dead (`is_lost`) does, as by a
        seizure: an event that kills its process is noticed however soon the death is.
        """
        ...

    async def drain(self, node: NodeKey) -> None:
        """Tell that a node is about to leave: nothing more is granted to it, and what it has is to move.

        Of a stale incarnation: nothing.
        """
        ...

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Take leadership, or go on leading.

        1. The holder extends its lease and keeps its epoch, even if the lease has expired and nobody has taken it.
        2. Another takes it only after the lease has expired; the epoch grows by one. A lease that would last for more
           than twice as long as the one that is asked for counts as expired: the store's clock was set back.
        3. None while somebody else holds it; another incarnation of a node is somebody else.
        4. It needs no `join`: a node may lead and consume nothing.
        """
        ...

    async def resign(self, leadership: Leadership) -> bool:
        """Give leadership up, so that anyone may take it at once; False if it was not the caller's any more.

        It is stale from then on: who leads next, and be it the same node, has a larger epoch.
        """
        ...

    async def survey(self) -> Survey:
        """Return all that the allocator looks at, as of one instant; nodes and allocations in order.

        `silent` and `joined` of a node are negative where the store's clock was set back since.
        """
        ...

    async def allot(self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta) -> list[bool] | None:
        """Carry out moves; True for each that took effect, None if the leadership is stale: then nothing did.

        1. The epoch is compared in the same transaction, in a way that a usurper waits for, or beats, the writes. A
           leadership is stale when somebody has taken it or it was resigned; not by the end of its lease alone.
        2. A move takes effect only if generation and state are those that it was planned on. Each is judged after those
           before it in the call.
        3. `GrantTo`: the share is free, its consumer not paused, the node joined under this incarnation, not draining
           and not silent past its ttl (`is_silent`, without grace). The generation grows by one.
        4. `Revoke`: the share is granted. The generation stays. Without a deadline it never becomes overdue.
        5. `Seize`: the share is granted or revoking, and the reason is true by the store's clock in the same step. The
           generation grows by one, and `losses` counts how often in a row it was seized at the same position; from
           `SUSPECTED` on, only while its owner was trying an event (see `Commit.tries`).
        6. `target` is kept while a share becomes free, and is gone when it is granted.
        7. Every step that took effect leaves a transition.
        """
        ...

    async def complete_shares(self, leadership: Leadership) -> int | None:
        """Make free allocations for partitions that consumers of the log, or of a category made later, lack; how many.

        1. None if the leadership is stale: then nothing is done.
        2. Nodes that have been silent for more than a day and own nothing are forgotten.
        """
        ...

    async def leader(self) -> LeaderView | None:
        """Return who leads, or led last; None if nobody ever did or the last one has resigned."""
        ...

    async def nodes(self) -> list[NodeView]:
        """List the nodes in order."""
        ...

    async def transitions(self, *, limit: int) -> list[Transition]:
        """List the last steps of allocations between states, newest first: those of leaders, owners and people.

        Granted, revoked, seized, released, freed by `join`, `leave` or `reset`; a reset notes every share, free ones
        too. The store may forget all but the last thousand.
        """
        ...
