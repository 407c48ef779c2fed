"""What the leader sees, and the moves that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.consumers import partitions_of
from holdfast.backends.sqlite.verbs.nodes import holds, nodes
from holdfast.backends.sqlite.verbs.transitions import Row, record
from holdfast.model.allocation import AllocationState, GrantTo, Leadership, Move, NodeKey, Revoke, Seize, Share
from holdfast.model.instants import span_micros
from holdfast.model.move_guard import NodeSeen, ShareSeen, node_in_question, still_holds
from holdfast.store.stream_values import Allotted, Survey

_FORGET_NODES_AFTER = timedelta(days=1)


def survey(tx: Tx) -> Survey:
    """Return all that the allocator looks at."""
    return Survey(
        nodes=tuple(nodes(tx)),
        allocations=tuple(
            Allotted(
                share=Share(consumer, category, partition_id),
                state=AllocationState(state),
                generation=generation,
                owner=None if owner is None else NodeKey(owner, incarnation),
                target=target,
                overdue=deadline is not None and deadline < tx.now,
            )
            for consumer, category, partition_id, state, generation, owner, incarnation, target, deadline in tx.rows(
                "list_allocations"
            )
        ),
        paused=frozenset(row[0] for row in tx.rows("paused_consumers")),
        is_complete=not _lacking(tx),
    )


def _lacking(tx: Tx) -> list[tuple[str, int, int, int]]:
    """Return the shares that there should be and are not: consumer, category, partition, first generation."""
    return [
        (consumer, category_id, partition_id, generation)
        for consumer, category_id, partition_id, stream, generation, partitions in tx.rows("lacking_shares")
        if partition_id in partitions_of(stream, partitions)
    ]


def complete_shares(tx: Tx, leadership: Leadership) -> int | None:
    """Make the shares that there should be, at the beginning: their categories are newer than the subscriptions.

    And forget the nodes that are not there any more.
    """
    if not holds(tx, leadership):
        return None
    lacking = _lacking(tx)
    for consumer, category_id, partition_id, generation in lacking:
        tx.run("add_allocation", (consumer, category_id, partition_id, generation, 0, tx.now))
    tx.run("forget_silent_nodes", {"before": tx.now - span_micros(_FORGET_NODES_AFTER)})
    return len(lacking)


def allot(tx: Tx, leadership: Leadership, moves: Sequence[Move], grace: timedelta) -> list[bool] | None:
    """Carry out moves, each only if what it was planned on still holds."""
    if not holds(tx, leadership):
        return None
    return [_move(tx, leadership.epoch, move, span_micros(grace)) for move in moves]


def _move(tx: Tx, epoch: int, move: Move, grace: int) -> bool:
    share = move.share
    names = {"consumer": share.consumer, "category": share.category, "partition_id": share.partition_id}
    columns = tx.row("share_for_move", names)
    if columns is None:
        return False
    category_id, state, generation, owner_id, incarnation, deadline, paused = columns
    owner = None if owner_id is None else NodeKey(owner_id, incarnation)
    is_overdue = deadline is not None and deadline < tx.now
    seen = ShareSeen(AllocationState(state), generation, owner, is_overdue=is_overdue, is_paused=bool(paused))
    if not still_holds(move, seen, _node(tx, node_in_question(move, owner)), grace=grace):
        return False
    _carry_out(tx, epoch, move, Row(share.consumer, category_id, share.partition_id, state, generation, owner_id))
    return True


def _node(tx: Tx, node_id: str | None) -> NodeSeen | None:
    found = None if node_id is None else tx.row("find_node", {"node_id": node_id})
    if found is None:
        return None
    incarnation, draining, beat_at, ttl = found
    return NodeSeen(incarnation, is_draining=bool(draining), since=tx.now - beat_at, ttl=ttl)


def _carry_out(tx: Tx, epoch: int, move: Move, row: Row) -> None:
    match move:
        case GrantTo(node=node):
            names = {**row.place, "owner": node.node_id, "incarnation": node.incarnation, "now": tx.now}
            tx.run("grant_share", names)
            record(tx, row, AllocationState.GRANTED, row.generation + 1, node=node.node_id, epoch=epoch)
        case Revoke(drain=drain, target=target):
            deadline = None if drain is None else tx.now + span_micros(drain)
            tx.run("revoke_share", {**row.place, "target": target, "deadline_at": deadline, "now": tx.now})
            record(tx, row, AllocationState.REVOKING, row.generation, epoch=epoch)
        case Seize():
            tx.run("free_share", {**row.place, "grows": 1, "lost": 1, "target": None, "now": tx.now})
            record(tx, row, AllocationState.FREE, row.generation + 1, epoch=epoch)
        case _:
            raise AssertionError(move)
