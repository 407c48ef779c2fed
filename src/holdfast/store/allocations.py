"""The port's verbs for nodes, leadership and shares.

A share is a consumer's claim on one partition. Safety depends only on its generation: two leaders at once, a node that
was declared dead but still runs, or a lost notification cost time, but never an effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.model.allocation import Leadership, Move, NodeKey, Timing
from holdfast.store.stream_values import LeaderView, NewNode, NodeView, OwnedShares, Survey, Transition


class AllocationStore(Protocol):
    """Nodes, the leader, and which node owns which share. Every method is one atomic step, and safe to repeat.

    All times are measured by the store's clock.
    """

    async def join(self, node: NewNode) -> None:
        """Register a node, or a new incarnation of it.

        1. The shares of an older incarnation become free at once, with a larger generation and the node itself as their
           `target`: a quick restart gets them back, and the older process, if it still runs, is refused. This counts in
           `losses` like a seizure: an event that kills its process is detected however fast the process restarts.
        2. A repeat by the same incarnation counts as a heartbeat with its timing, and changes nothing else.
        3. A new incarnation is not draining, whatever the older one was.
        """
        ...

    async def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:
        """Record that a node is alive, and return its shares.

        1. `is_known` is False if the node is not registered, or under another incarnation: it must stop everything and
           join again.
        2. The shares are those granted to this incarnation, revoking ones included, in order.
        3. A node that was silent for a long time is alive again, and keeps the shares that were not seized meanwhile.
        4. It does not wait for handlers' transactions if the store can avoid that: a late heartbeat costs a node its
           shares.
        """
        ...

    async def owned(self, node: NodeKey) -> OwnedShares:
        """Return what `heartbeat` would return, but write nothing: it does not count as a heartbeat."""
        ...

    async def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:
        """Remove a node: its shares become free, with a larger generation. Does nothing for a stale incarnation.

        If the node leaves by itself, `losses` stay as they are. If it is known to be dead (`is_lost`), they grow as by
        a seizure: an event that kills its process is detected however soon the death is noticed.
        """
        ...

    async def drain(self, node: NodeKey) -> None:
        """Record that a node is about to leave: it is granted no further share, and its shares are to move.

        Does nothing for a stale incarnation.
        """
        ...

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Take leadership, or extend it.

        1. The holder extends its lease and keeps its epoch, even after the lease has expired, unless another node has
           taken leadership.
        2. Another node takes it only after the lease has expired; the epoch grows by one. A lease with more than twice
           the requested length left counts as expired: the store's clock was set back.
        3. None while another node holds it; another incarnation of a node is another node.
        4. It needs no `join`: a node may lead without running consumers.
        """
        ...

    async def resign(self, leadership: Leadership) -> bool:
        """Release leadership, so that any node may take it at once; False if it was stale.

        It is stale afterwards: the next leader, even the same node, has a larger epoch.
        """
        ...

    async def survey(self) -> Survey:
        """Return the input of the allocator, as of one instant; nodes and shares in order.

        `silent` and `joined` of a node are negative if the store's clock was set back since.
        """
        ...

    async def move_shares(
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        """Carry out moves; True for each that took effect. None if the leadership is stale: then none took effect.

        1. The epoch is compared in the same transaction, so that a node that takes leadership either waits for these
           writes or prevents them. A leadership is stale if another node has taken it or it was resigned, but not
           because its lease has expired.
        2. A move takes effect only if generation and state are those that it was planned on. Each is judged after those
           before it in the call.
        3. `GrantTo`: the share is free, its consumer not paused, the node joined under this incarnation, not draining
           and not silent past its ttl (`is_silent`, without grace). The generation grows by one.
        4. `Revoke`: the share is granted. The generation stays. Without a deadline it never becomes overdue.
        5. `Seize`: the share is granted or revoking, and the reason is true by the store's clock in the same step. The
           generation grows by one, and `losses` counts how often in a row it was seized at the same position; from
           `SUSPECTED` on, only if its owner was handling an event alone (see `Commit`).
        6. `target` is kept when a share becomes free, and cleared when it is granted.
        7. Every move that took effect is logged as a transition.
        """
        ...

    async def complete_shares(self, leadership: Leadership) -> int | None:
        """Add free shares where a consumer of the log, or of a category created later, has none; return how many.

        1. None if the leadership is stale: then nothing is done.
        2. Nodes that have been silent for more than a day and own nothing are forgotten.
        """
        ...

    async def leader(self) -> LeaderView | None:
        """Return the node that leads or led last; None if no node ever did, or the last one has resigned."""
        ...

    async def nodes(self) -> list[NodeView]:
        """List the nodes in order."""
        ...

    async def transitions(self, *, limit: int) -> list[Transition]:
        """List the last transitions of shares, newest first: those by leaders, owners and operators.

        Granted, revoked, seized, released, freed by `join`, `leave` or `reset`; a reset logs every share, free ones
        too. Only about the last thousand are kept.
        """
        ...
