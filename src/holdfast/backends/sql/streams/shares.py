"""The leader's moves of shares.

All rows that the moves of a call depend on are locked first: consumers, nodes, shares, each kind in order. Then the
moves are judged one after the other. A seizure waits for a transaction of the owner; a revocation does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.backends.sql.steps import Ask, rows, together
from holdfast.backends.sql.streams.leadership import hold_leadership
from holdfast.backends.sql.streams.share_rows import Changed, ShareRow, granted, revoked, taken, write
from holdfast.model.allocation import GrantTo, Leadership, Move, Revoke, Seize, SeizeReason, Share, ShareState
from holdfast.model.instants import span_micros
from holdfast.model.move_guard import NodeSeen, ShareSeen, node_in_question, still_holds
from holdfast.store.steps import Steps


class _LockedNode(NamedTuple):
    node_id: str
    incarnation: str
    draining: bool
    heartbeat_at: int
    ttl: int


class _LockedRows(NamedTuple):
    """The locked rows by which the moves of a call are judged."""

    now: int
    grace: int
    paused: set[str]
    nodes: dict[str, _LockedNode]
    shares: dict[Share, ShareRow]

    def judged(self, move: Move) -> bool:
        """Return whether a move may be carried out on the locked rows, after the moves before it."""
        row = self.shares.get(move.share)
        if row is None:
            return False
        seen = ShareSeen(
            state=ShareState(row.state),
            generation=row.generation,
            owner=row.owner_key,
            is_overdue=row.deadline_at is not None and row.deadline_at < self.now,
            is_paused=row.consumer in self.paused,
        )
        return still_holds(move, seen, self._node(node_in_question(move, row.owner_key)), grace=self.grace)

    def _node(self, node_id: str | None) -> NodeSeen | None:
        node = None if node_id is None else self.nodes.get(node_id)
        if node is None:
            return None
        since = self.now - node.heartbeat_at
        return NodeSeen(node.incarnation, is_draining=bool(node.draining), since=since, ttl=node.ttl)

    def moved(self, move: Move) -> ShareRow:
        """Return the share after a move."""
        row = self.shares[move.share]
        match move:
            case GrantTo(node=node):
                return granted(row, node)
            case Revoke(drain=drain, target=target):
                deadline_at = None if drain is None else self.now + span_micros(drain)
                return revoked(row, target=target, deadline_at=deadline_at)
            case Seize():
                return taken(row, is_loss=True)
            case _:
                raise AssertionError(move)


Lockable = Callable[[Sequence[Move]], Steps[set[Move]]]


def _all(moves: Sequence[Move]) -> Steps[set[Move]]:
    yield from ()
    return set(moves)


def move_shares(
    leadership: Leadership, moves: Sequence[Move], grace: timedelta, *, lockable: Lockable = _all
) -> Steps[list[bool] | None]:
    """Carry out moves, each only if the state that it was planned on is unchanged.

    `lockable` is a step that a store may add under the leadership: it returns the moves whose rows may be waited for;
    the others are refused.
    """
    if not (yield from hold_leadership(leadership)):
        return None
    if not moves:
        return []
    allowed = yield from lockable(moves)
    chosen = [move for move in moves if move in allowed]
    done = iter((yield from _move(leadership, chosen, span_micros(grace))))
    return [move in allowed and next(done) for move in moves]


def _move(leadership: Leadership, moves: Sequence[Move], grace: int) -> Steps[list[bool]]:
    locked = yield from _lock(moves, grace)
    verdicts: list[bool] = []
    changes: list[Changed] = []
    for move in moves:
        verdicts.append(locked.judged(move))
        if verdicts[-1]:
            after = locked.moved(move)
            changes.append((locked.shares[move.share], after))
            locked.shares[move.share] = after
    yield from write(changes, leadership.epoch)
    return verdicts


def _lock(moves: Sequence[Move], grace: int) -> Steps[_LockedRows]:
    names = sorted({move.share.consumer for move in moves})
    consumers = yield from rows("hold_consumers", consumers=names)
    nodes = yield from _lock_nodes(moves)
    seized = {move.share for move in moves if isinstance(move, Seize)}
    others = {move.share for move in moves} - seized
    waited, locked, ((now,),) = yield from together(
        Ask("lock_shares_to_seize", share_lists(seized), ShareRow),
        Ask("lock_shares", share_lists(others), ShareRow),
        Ask("store_clock", {}),
    )
    paused = {name for name, is_paused in consumers if is_paused}
    return _LockedRows(now, grace, paused, nodes, {row.share: row for row in [*waited, *locked]})


def _lock_nodes(moves: Sequence[Move]) -> Steps[dict[str, _LockedNode]]:
    """Lock the nodes that moves depend on; the lock for a seizure for silence also blocks the node's heartbeats."""
    owned = {move.share for move in moves if not isinstance(move, GrantTo)}
    silent = {move.share for move in moves if isinstance(move, Seize) and move.reason is SeizeReason.SILENT}
    holders, suspects = yield from together(
        Ask("owners_of_shares", share_lists(owned)), Ask("owners_of_shares", share_lists(silent))
    )
    node_ids = {name for (name,) in holders} | {move.node.node_id for move in moves if isinstance(move, GrantTo)}
    stopped, held = yield from together(
        Ask("stop_nodes", {"node_ids": sorted({name for (name,) in suspects})}, _LockedNode),
        Ask("hold_nodes", {"node_ids": sorted(node_ids)}, _LockedNode),
    )
    return {node.node_id: node for node in [*stopped, *held]}


def share_lists(shares: Iterable[Share]) -> dict[str, object]:
    """Return the parameters that name shares in a statement, in ascending order."""
    listed = sorted(shares)
    return {
        "consumers": [share.consumer for share in listed],
        "categories": [share.category for share in listed],
        "partition_ids": [share.partition_id for share in listed],
    }
