"""The failure detector: which silent nodes the leader may take for dead.

The store's clock says how long a node has sent no heartbeat. That alone proves little: after an outage of the store
longer than `ttl + grace` every node has been silent for so long, and nearly all of them live; and when the store's
clock was set, in either direction, all heartbeats look old, or lie in the future. A leader that took their shares in
that moment would move everything for nothing, and interrupt what is being handled.

So the leader also counts what it has seen itself. A node is gone if it is silent by the store's clock, *and* for half a
`ttl` the leader has reached the store without a break (`Access`) and not once seen a fresh heartbeat of it, one that is
no older than half a `ttl`. Living nodes send a heartbeat every `beat`, and retry sooner when that fails: half a `ttl`
is several of them. It does not delay what is due: a node that dies is last seen fresh half a `ttl` later, so that the
half that the leader needs is over when `ttl` is, and the grace is still to come. A leader that follows one that died
has waited for its lease meanwhile; one that follows a leader that resigned may be late, by half a `ttl` at most.

Access counts from the beginning of the leadership, since only a leader looks. A gap of `self_fence` breaks it: a
shorter outage makes no node silent for a `ttl` that can send a heartbeat soon after it, and on SQLite a handler's
transaction, for which every heartbeat waits, is shorter.

What is not covered: a clock that is set forward makes the deadlines of revoked shares pass, and the owner that is late
is then cut off early. And where the leader reaches the store and others do not, they are silent indeed.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.allocation import NodeKey, Timing, is_silent
from holdfast.runtime.reachability import Access
from holdfast.store.stream_values import NodeView


class FailureDetector:
    """What the leader has seen of the store and of the nodes; `now` is a clock that never steps."""

    def __init__(self, timing: Timing) -> None:
        self._grace = timing.grace
        gap = max(timing.self_fence, 2 * timing.allot_every)  # the second: one pass is not enough to break it
        self._access = Access(gap=gap.total_seconds())
        self._fresh: dict[NodeKey, float] = {}  # when we last saw a fresh heartbeat of a node

    def answered(self, *, sent: float, now: float) -> None:
        """Note a call of the store that has just returned."""
        if now - sent > self._access.gap:
            self.broken()
        else:
            self._access.succeeded(now)

    def broken(self) -> None:
        """Note that a call failed, or that we do not lead."""
        self._access.failed()

    def gone(self, nodes: Iterable[NodeView], now: float) -> frozenset[NodeKey]:
        """Take in the nodes of a survey; return those that are gone."""
        seen = {view.node: view for view in nodes}
        self._fresh = {node: at for node, at in self._fresh.items() if node in seen}
        self._fresh.update({node: now for node, view in seen.items() if abs(view.silent) <= view.ttl / 2})
        began = self._access.began(now)
        if began is None:
            return frozenset()
        return frozenset(
            node
            for node, view in seen.items()
            if is_silent(view.silent, view.ttl, self._grace)
            and now - max(began, self._fresh.get(node, began)) >= view.ttl.total_seconds() / 2
        )
