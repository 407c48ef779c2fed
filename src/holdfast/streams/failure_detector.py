"""The failure detector: which silent nodes the leader may treat as dead.

The store's clock measures how long a node has sent no heartbeat. That alone proves little: after an outage of the store
longer than `ttl + grace` every node has been silent that long, and nearly all of them are alive; and when the store's
clock is set, in either direction, all heartbeats look old, or lie in the future. A leader that seized their shares at
that moment would move everything for nothing, and interrupt running handlers.

So the leader also uses its own observations. A node is gone if it is silent by the store's clock, *and* the leader has
for half a `ttl` had uninterrupted access to the store (`Access`) without seeing a fresh heartbeat of the node, that is,
one no older than half a `ttl`. Half a `ttl` covers several heartbeats of a live node, which retries sooner when one
fails. This does not delay a seizure that is due: a dead node is last seen fresh half a `ttl` after its last heartbeat,
so the leader's half has passed when `ttl` has, and the grace is still to come. The successor of a dead leader has
waited for its lease meanwhile; the successor of a leader that resigned may be late, by half a `ttl` at most.

Access counts from the beginning of the leadership, since only a leader reads the nodes. A gap of `self_fence` breaks
it: a shorter outage cannot make a node silent for a `ttl` if it sends a heartbeat soon afterwards, and on SQLite a
handler's transaction, for which every heartbeat waits, is shorter than that.

Not covered: when the store's clock is set forward, the deadlines of revoked shares pass, and owners that are still
draining lose their shares early. And nodes that cannot reach the store while the leader can are treated as dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.allocation import FRESH_PARTS, NodeKey, Timing, is_silent
from holdfast.runtime.reachability import Access
from holdfast.store.stream_values import NodeView


class FailureDetector:
    """The leader's observations of the store and the nodes; `now` is the time of a monotonic clock."""

    def __init__(self, timing: Timing) -> None:
        self._grace = timing.grace
        gap = max(timing.self_fence, 2 * timing.allocate_every)  # at least two: one missed pass does not break access
        self._access = Access(gap=gap.total_seconds())
        self._fresh: dict[NodeKey, float] = {}  # when the leader last saw a fresh heartbeat of a node

    def answered(self, *, sent: float, now: float) -> None:
        """Record a store call that has just returned."""
        if now - sent > self._access.gap:
            self.broken()
        else:
            self._access.succeeded(now)

    def broken(self) -> None:
        """Record that a store call failed, or that this node is not the leader."""
        self._access.failed()

    def gone(self, nodes: Iterable[NodeView], now: float) -> frozenset[NodeKey]:
        """Record the nodes of a survey; return those that are gone."""
        seen = {view.node: view for view in nodes}
        self._fresh = {node: at for node, at in self._fresh.items() if node in seen}
        self._fresh.update({node: now for node, view in seen.items() if abs(view.silent) <= view.ttl / FRESH_PARTS})
        began = self._access.began(now)
        if began is None:
            return frozenset()
        return frozenset(
            node
            for node, view in seen.items()
            if is_silent(view.silent, view.ttl, self._grace)
            and now - max(began, self._fresh.get(node, began)) >= view.ttl.total_seconds() / FRESH_PARTS
        )
