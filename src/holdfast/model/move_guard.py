"""Whether a move still holds: pure, for every store that judges by what it has locked, at its own time.

The leader planned on what it saw some time ago. Since then the share may have passed on, its owner reported, its
consumer been paused. The store is the judge: it locks what the move speaks of, and asks here. The reference model
answers the same question in words of its own, so that the two can be compared.
"""

from __future__ import annotations

import msgspec

from holdfast.model.allocation import AllocationState, GrantTo, Move, NodeKey, Revoke, Seize, SeizeReason, is_silent


class NodeSeen(msgspec.Struct, frozen=True):
    """A node as the store has it; spans in microseconds."""

    incarnation: str
    is_draining: bool
    since: int  # its last report
    ttl: int


class ShareSeen(msgspec.Struct, frozen=True):
    """An allocation as the store has it."""

    state: AllocationState
    generation: int
    owner: NodeKey | None
    is_overdue: bool  # it was to be released, and the deadline has passed
    is_paused: bool  # its consumer is


def node_in_question(move: Move, owner: NodeKey | None) -> str | None:
    """Return the id of the node by which a move is judged: who shall have the share, or who has it."""
    if isinstance(move, GrantTo):
        return move.node.node_id
    return None if owner is None else owner.node_id


def still_holds(move: Move, share: ShareSeen, node: NodeSeen | None, *, grace: int) -> bool:
    """Tell whether what a move was planned on is so now; `node` is the one in question, None if it is not known."""
    if share.generation != move.generation:
        return False
    match move:
        case GrantTo():
            is_open = share.state is AllocationState.FREE and not share.is_paused
            return is_open and node is not None and _can_take(move.node, node)
        case Revoke():
            return share.state is AllocationState.GRANTED
        case Seize():
            return share.owner is not None and _is_true(move.reason, share, share.owner, node, grace)
        case _:
            raise AssertionError(move)


def _can_take(taker: NodeKey, node: NodeSeen) -> bool:
    is_there = node.incarnation == taker.incarnation and not is_silent(node.since, node.ttl, 0)
    return is_there and not node.is_draining


def _is_true(reason: SeizeReason, share: ShareSeen, owner: NodeKey, node: NodeSeen | None, grace: int) -> bool:
    if reason is SeizeReason.OVERDUE:
        return share.state is AllocationState.REVOKING and share.is_overdue
    is_there = node is not None and node.incarnation == owner.incarnation
    if reason is SeizeReason.REPLACED:
        return not is_there
    return node is not None and is_there and is_silent(node.since, node.ttl, grace)
