"""What the leader sees, and the moves that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.consumers import partitions_of
from holdfast.backends.sqlite.verbs.nodes import holds, nodes
from holdfast.backends.sqlite.verbs.transitions import Row, record
from holdfast.model.allocation import (
    AllocationState,
    GrantTo,
    Leadership,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    Share,
    is_silent,
)
from holdfast.model.instants import span_micros
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


class _Seen(NamedTuple):
    """An allocation as it is now."""

    category_id: int
    state: str
    generation: int
    owner: str | None
    incarnation: str | None
    deadline: int | None
    paused: int


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
    seen = _Seen(*columns)
    if seen.generation != move.generation:
        return False
    row = Row(share.consumer, seen.category_id, share.partition_id, seen.state, seen.generation, seen.owner)
    match move:
        case GrantTo():
            return _grant(tx, epoch, move, seen, row)
        case Revoke():
            return _revoke(tx, epoch, move, row)
        case Seize():
            return _seize(tx, epoch, move, seen, row, grace)
        case _:
            raise AssertionError(move)


def _grant(tx: Tx, epoch: int, move: GrantTo, seen: _Seen, row: Row) -> bool:
    found = tx.row("find_node", {"node_id": move.node.node_id})
    if seen.state != AllocationState.FREE or seen.paused or found is None:
        return False
    incarnation, draining, beat_at, ttl = found
    if incarnation != move.node.incarnation or draining or is_silent(tx.now - beat_at, ttl, 0):
        return False
    names = {**row.place, "owner": move.node.node_id, "incarnation": incarnation, "now": tx.now}
    tx.run("grant_share", names)
    record(tx, row, AllocationState.GRANTED, row.generation + 1, node=move.node.node_id, epoch=epoch)
    return True


def _revoke(tx: Tx, epoch: int, move: Revoke, row: Row) -> bool:
    if row.state != AllocationState.GRANTED:
        return False
    deadline = None if move.drain is None else tx.now + span_micros(move.drain)
    tx.run("revoke_share", {**row.place, "target": move.target, "deadline_at": deadline, "now": tx.now})
    record(tx, row, AllocationState.REVOKING, row.generation, epoch=epoch)
    return True


def _seize(tx: Tx, epoch: int, move: Seize, seen: _Seen, row: Row, grace: int) -> bool:
    if seen.state == AllocationState.FREE or not _is_true(tx, move.reason, seen, grace):
        return False
    tx.run("free_share", {**row.place, "grows": 1, "lost": 1, "target": None, "now": tx.now})
    record(tx, row, AllocationState.FREE, row.generation + 1, epoch=epoch)
    return True


def _is_true(tx: Tx, reason: SeizeReason, seen: _Seen, grace: int) -> bool:
    """Tell whether the reason for a seizure holds by the store's clock, now."""
    if reason is SeizeReason.OVERDUE:
        return seen.state == AllocationState.REVOKING and seen.deadline is not None and seen.deadline < tx.now
    found = tx.row("find_node", {"node_id": seen.owner})
    is_other = found is None or found[0] != seen.incarnation
    if reason is SeizeReason.REPLACED:
        return is_other
    return found is not None and not is_other and is_silent(tx.now - found[2], found[3], grace)
