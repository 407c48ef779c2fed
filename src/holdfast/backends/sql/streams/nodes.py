"""Nodes: join, heartbeat, drain, leave."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import msgspec

from holdfast.backends.sql.steps import Ask, records, rows, run, together, value
from holdfast.backends.sql.streams.share_rows import ShareRow, taken, write
from holdfast.model.allocation import Grant, NodeKey, Share, ShareState, Timing
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Member, NewNode, NodeView, OwnedShare, OwnedShares


class _Owned(NamedTuple):
    consumer: str
    category: str
    partition_id: int
    generation: int
    state: str
    drain_left: int | None


class NodeRow(NamedTuple):
    """A node in a list."""

    node_id: str
    incarnation: str
    host: str
    pid: int
    draining: bool
    silent: int
    ttl: int
    joined: int
    members: str
    shares: int


def _key(node: NodeKey) -> dict[str, object]:
    return {"node_id": node.node_id, "incarnation": node.incarnation}


def _nothing() -> Steps[None]:
    yield from ()


def join(new: NewNode, *, before_shares: Callable[[], Steps[None]] = _nothing) -> Steps[None]:
    """Register a node; the shares of an older incarnation become free, with the node itself as their target.

    `before_shares` is a step that a store may add before these shares are locked.
    """
    incarnation = yield from value("lock_node", node_id=new.node.node_id)
    if incarnation == new.node.incarnation:
        yield from heartbeat(new.node, new.timing)
        return
    members = msgspec.json.encode(new.members).decode()
    place = {"host": new.host, "pid": new.pid, "members": members, "ttl": span_micros(new.timing.ttl)}
    yield from run("put_node", **_key(new.node), **place)
    yield from before_shares()
    owned = yield from records(ShareRow, "lock_shares_of_node", node_id=new.node.node_id)
    yield from _take(owned, target=new.node.node_id, is_loss=True)


def _take(owned: list[ShareRow], *, target: str | None, is_loss: bool) -> Steps[None]:
    yield from write([(row, taken(row, target=target, is_loss=is_loss)) for row in owned])


def heartbeat(node: NodeKey, timing: Timing) -> Steps[OwnedShares]:
    """Record a heartbeat; return the node's shares."""
    known, owned = yield from together(
        Ask("node_heartbeat", {**_key(node), "ttl": span_micros(timing.ttl)}), Ask("owned_shares", _key(node), _Owned)
    )
    return _answer(owned, is_known=bool(known))


def owned(node: NodeKey) -> Steps[OwnedShares]:
    """Return a node's shares."""
    known, shares = yield from together(Ask("find_node", _key(node)), Ask("owned_shares", _key(node), _Owned))
    return _answer(shares, is_known=bool(known))


def _answer(owned: list[_Owned], *, is_known: bool) -> OwnedShares:
    return OwnedShares(is_known=True, owned=tuple(map(_owned, owned))) if is_known else OwnedShares(is_known=False)


def _owned(row: _Owned) -> OwnedShare:
    left = row.drain_left
    return OwnedShare(
        grant=Grant(Share(row.consumer, row.category, row.partition_id), row.generation),
        state=ShareState(row.state),
        drain_left=None if left is None else timedelta(microseconds=max(0, left)),
    )


def leave(node: NodeKey, *, is_lost: bool) -> Steps[None]:
    """Remove a node; its shares become free."""
    if (yield from run("remove_node", **_key(node))):
        owned = yield from records(ShareRow, "lock_shares_of_node", node_id=node.node_id)
        yield from _take([row for row in owned if row.owner_key == node], target=None, is_loss=is_lost)


def drain(node: NodeKey) -> Steps[None]:
    """Record that a node is about to leave; the lock waits for a grant in flight to this node."""
    yield from rows("lock_node", node_id=node.node_id)
    yield from run("drain_node", **_key(node))


def nodes() -> Steps[list[NodeView]]:
    """List the nodes in order."""
    return [node_view(row) for row in (yield from records(NodeRow, "list_nodes"))]


def node_view(row: NodeRow) -> NodeView:
    """Return the port's view of a node."""
    return NodeView(
        node=NodeKey(row.node_id, row.incarnation),
        host=row.host,
        pid=row.pid,
        is_draining=bool(row.draining),
        silent=timedelta(microseconds=row.silent),
        ttl=timedelta(microseconds=row.ttl),
        joined=timedelta(microseconds=row.joined),
        members=msgspec.json.decode(row.members, type=tuple[Member, ...]),
        shares=row.shares,
    )
