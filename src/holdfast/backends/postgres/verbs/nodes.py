"""Nodes that come, report and go, and the one that leads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from holdfast.backends.postgres.verbs.transitions import forget_old
from holdfast.backends.sql.steps import Ask, row, rows, run, together, value
from holdfast.model.allocation import AllocationState, Grant, Leadership, NodeKey, Share, Timing
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Beat, LeaderView, Member, NewNode, NodeView, Owned

_WAIT = 1000  # milliseconds for a transaction of the process that had the same node id


def _key(node: NodeKey) -> dict[str, object]:
    return {"node_id": node.node_id, "incarnation": node.incarnation}


def join(new: NewNode) -> Steps[None]:
    """Make a node known; what an older incarnation of it owned is meant for the new one."""
    incarnation = yield from value("lock_node", node_id=new.node.node_id)
    if incarnation == new.node.incarnation:
        yield from beat(new.node, new.timing)
        return
    yield from run(
        "put_node",
        **_key(new.node),
        host=new.host,
        pid=new.pid,
        members=msgspec.json.encode(new.members).decode(),
        ttl=span_micros(new.timing.ttl),
    )
    yield from rows("wait_at_most", milliseconds=_WAIT)
    yield from _free_all(new.node.node_id, None, target=new.node.node_id, lost=1)


def _free_all(node_id: str, incarnation: str | None, *, target: str | None, lost: int) -> Steps[None]:
    if (yield from rows("lock_shares_of_node", node_id=node_id)):
        names = {"node_id": node_id, "incarnation": incarnation, "target": target, "lost": lost}
        noted = yield from rows("free_shares_of_node", **names)
        yield from forget_old([transition_id for (transition_id,) in noted])


def beat(node: NodeKey, timing: Timing) -> Steps[Beat]:
    """Note that a node lives; return what it owns."""
    known, owned = yield from together(
        Ask("node_beat", {**_key(node), "ttl": span_micros(timing.ttl)}), Ask("owned", _key(node))
    )
    return Beat(is_known=True, owned=tuple(map(_owned, owned))) if known else Beat(is_known=False)


def owned(node: NodeKey) -> Steps[Beat]:
    """Return what a node owns."""
    known, rows_owned = yield from together(Ask("find_node", _key(node)), Ask("owned", _key(node)))
    return Beat(is_known=True, owned=tuple(map(_owned, rows_owned))) if known else Beat(is_known=False)


def _owned(row: Any) -> Owned:
    consumer, category, partition_id, generation, state, left = row
    return Owned(
        grant=Grant(Share(consumer, category, partition_id), generation),
        state=AllocationState(state),
        drain_left=None if left is None else timedelta(microseconds=max(0, left)),
    )


def leave(node: NodeKey) -> Steps[None]:
    """Take a node away."""
    if (yield from run("remove_node", **_key(node))):
        yield from _free_all(node.node_id, node.incarnation, target=None, lost=0)


def drain(node: NodeKey) -> Steps[None]:
    """Note that a node is about to leave; the lock waits for whoever is granting it a share."""
    yield from rows("lock_node", node_id=node.node_id)
    yield from run("drain_node", **_key(node))


def nodes() -> Steps[list[NodeView]]:
    """List the nodes in order."""
    return [_node_view(each) for each in (yield from rows("list_nodes"))]


def _node_view(row: Any) -> NodeView:
    node_id, incarnation, host, pid, draining, silent, ttl, joined, members, shares = row
    return NodeView(
        node=NodeKey(node_id, incarnation),
        host=host,
        pid=pid,
        is_draining=draining,
        silent=timedelta(microseconds=silent),
        ttl=timedelta(microseconds=ttl),
        joined=timedelta(microseconds=joined),
        members=msgspec.json.decode(members, type=tuple[Member, ...]),
        shares=shares,
    )


# --- leading ----------------------------------------------------------------------------------------------------------


def lead(node: NodeKey, lease: timedelta) -> Steps[Leadership | None]:
    """Take leadership, or go on leading."""
    epoch = yield from value("take_leadership", **_key(node), lease=span_micros(lease))
    return None if epoch is None else Leadership(node, epoch)


def hold_leadership(leadership: Leadership) -> Steps[bool]:
    """Tell whether a leadership stands; until the end of the transaction nobody can take it."""
    return (yield from run("hold_leadership", **_key(leadership.node), epoch=leadership.epoch))


def resign(leadership: Leadership) -> Steps[bool]:
    """Give leadership up."""
    return (yield from run("resign", **_key(leadership.node), epoch=leadership.epoch))


def leader() -> Steps[LeaderView | None]:
    """Return who leads or led last."""
    found = yield from row("leader")
    if found is None:
        return None
    epoch, node_id, incarnation, left = found
    return LeaderView(Leadership(NodeKey(node_id, incarnation), epoch), timedelta(microseconds=left))
