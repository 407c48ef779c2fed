"""Nodes that come, report and go, and the one that leads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.transitions import Row, record
from holdfast.model.allocation import AllocationState, Grant, Leadership, NodeKey, Share, Timing
from holdfast.model.instants import span_micros
from holdfast.store.stream_values import Beat, LeaderView, Member, NewNode, NodeView, Owned


def _key(node: NodeKey) -> dict[str, object]:
    return {"node_id": node.node_id, "incarnation": node.incarnation}


def join(tx: Tx, new: NewNode) -> None:
    """Make a node known; what an older incarnation of it owned is meant for the new one."""
    found = tx.row("find_node", {"node_id": new.node.node_id})
    if found is not None and found[0] == new.node.incarnation:
        beat(tx, new.node, new.timing)
        return
    _free_all(tx, new.node.node_id, None, target=new.node.node_id, lost=1)
    names = {
        **_key(new.node),
        "host": new.host,
        "pid": new.pid,
        "members": msgspec.json.encode(new.members).decode(),
        "ttl": span_micros(new.timing.ttl),
        "now": tx.now,
    }
    tx.run("put_node", names)


def _free_all(tx: Tx, node_id: str, incarnation: str | None, *, target: str | None, lost: int) -> None:
    for columns in tx.rows("shares_of_node", {"node_id": node_id, "incarnation": incarnation}):
        row = Row(*columns)
        tx.run("free_share", {**row.place, "grows": 1, "lost": lost, "target": target, "now": tx.now})
        record(tx, row, AllocationState.FREE, row.generation + 1)


def beat(tx: Tx, node: NodeKey, timing: Timing) -> Beat:
    """Note that a node lives; return what it owns."""
    if not tx.run("node_beat", {**_key(node), "ttl": span_micros(timing.ttl), "now": tx.now}):
        return Beat(is_known=False)
    return _owns(tx, node)


def owned(tx: Tx, node: NodeKey) -> Beat:
    """Return what a node owns."""
    found = tx.row("find_node", {"node_id": node.node_id})
    return Beat(is_known=False) if found is None or found[0] != node.incarnation else _owns(tx, node)


def _owns(tx: Tx, node: NodeKey) -> Beat:
    return Beat(is_known=True, owned=tuple(_owned(tx, row) for row in tx.rows("owned", _key(node))))


def _owned(tx: Tx, row: Any) -> Owned:
    consumer, category, partition_id, generation, state, deadline = row
    left = None if deadline is None else timedelta(microseconds=max(0, deadline - tx.now))
    return Owned(Grant(Share(consumer, category, partition_id), generation), AllocationState(state), left)


def leave(tx: Tx, node: NodeKey, *, is_lost: bool) -> None:
    """Take a node away."""
    if tx.run("remove_node", _key(node)):
        _free_all(tx, node.node_id, node.incarnation, target=None, lost=int(is_lost))


def drain(tx: Tx, node: NodeKey) -> None:
    """Note that a node is about to leave."""
    tx.run("drain_node", _key(node))


def nodes(tx: Tx) -> list[NodeView]:
    """List the nodes in order."""
    return [_node_view(tx, row) for row in tx.rows("list_nodes")]


def _node_view(tx: Tx, row: Any) -> NodeView:
    node_id, incarnation, host, pid, draining, beat_at, ttl, joined_at, members, shares = row
    return NodeView(
        node=NodeKey(node_id, incarnation),
        host=host,
        pid=pid,
        is_draining=bool(draining),
        silent=timedelta(microseconds=tx.now - beat_at),
        ttl=timedelta(microseconds=ttl),
        joined=timedelta(microseconds=tx.now - joined_at),
        members=msgspec.json.decode(members, type=tuple[Member, ...]),
        shares=shares,
    )


# --- leading ----------------------------------------------------------------------------------------------------------


def lead(tx: Tx, node: NodeKey, lease: timedelta) -> Leadership | None:
    """Take leadership, or go on leading."""
    epoch, node_id, incarnation, until = tx.row("leadership")
    if NodeKey(node_id or "", incarnation or "") != node:
        left = until - tx.now
        if node_id is not None and 0 <= left <= 2 * span_micros(lease):  # longer: the clock was set back
            return None
        epoch += 1
    tx.run("set_leadership", {**_key(node), "epoch": epoch, "until_at": tx.now + span_micros(lease)})
    return Leadership(node, epoch)


def holds(tx: Tx, leadership: Leadership) -> bool:
    """Tell whether a leadership stands; under the write lock nobody can take it meanwhile."""
    epoch, node_id, incarnation, _ = tx.row("leadership")
    return leadership == Leadership(NodeKey(node_id or "", incarnation or ""), epoch)


def resign(tx: Tx, leadership: Leadership) -> bool:
    """Give leadership up."""
    if not holds(tx, leadership):
        return False
    tx.run("set_leadership", {"epoch": leadership.epoch, "node_id": None, "incarnation": None, "until_at": 0})
    return True


def leader(tx: Tx) -> LeaderView | None:
    """Return who leads or led last."""
    epoch, node_id, incarnation, until = tx.row("leadership")
    if node_id is None:
        return None
    return LeaderView(Leadership(NodeKey(node_id, incarnation), epoch), timedelta(microseconds=until - tx.now))
