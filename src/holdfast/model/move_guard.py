"""The guard of a move: whether the state that the leader planned on is still current. Pure.

The leader plans moves on a survey that is some time old. Since then the share may have changed hands, its owner may
have sent a heartbeat, or its consumer may have been paused. The store therefore decides: it locks the rows that the
move concerns, and evaluates the guard on the locked rows, by the store's clock.

```text
   leader                         store
   survey ──▶ plan moves ──▶ lock share and node ──▶ guard holds? ──yes──▶ write, generation + 1
                                                          └─no──▶ skip the move: the next plan decides again
```

The reference model implements the same rule independently, so that the two can be compared.
"""

from __future__ import annotations

import msgspec

from holdfast.model.allocation import GrantTo, Move, NodeKey, Revoke, Seize, SeizeReason, ShareState, is_silent


class NodeSeen(msgspec.Struct, frozen=True):
    """A node as stored; durations in microseconds."""

    incarnation: str
    is_draining: bool
    since: int  # the time since its last heartbeat
    ttl: int


class ShareSeen(msgspec.Struct, frozen=True):
    """A share as stored."""

    state: ShareState
    generation: int
    owner: NodeKey | None
    is_overdue: bool  # it was revoked, and the deadline for its release has passed
    is_paused: bool  # its consumer is paused


def node_in_question(move: Move, owner: NodeKey | None) -> str | None:
    """Return the id of the node that the guard looks at: the future owner for a grant, else the current owner."""
    if isinstance(move, GrantTo):
        return move.node.node_id
    return None if owner is None else owner.node_id


def still_holds(move: Move, share: ShareSeen, node: NodeSeen | None, *, grace: int) -> bool:
    """Return whether a move may be applied; `node` is the `node_in_question`, or None if there is no such node."""
    if share.generation != move.generation:
        return False
    match move:
        case GrantTo():
            is_open = share.state is ShareState.FREE and not share.is_paused
            return is_open and node is not None and _can_take(move.node, node)
        case Revoke():
            return share.state is ShareState.GRANTED
        case Seize():
            return share.owner is not None and _is_true(move.reason, share, share.owner, node, grace)
        case _:
            raise AssertionError(move)


def _can_take(taker: NodeKey, node: NodeSeen) -> bool:
    is_there = node.incarnation == taker.incarnation and not is_silent(node.since, node.ttl, 0)
    return is_there and not node.is_draining


def _is_true(reason: SeizeReason, share: ShareSeen, owner: NodeKey, node: NodeSeen | None, grace: int) -> bool:
    if reason is SeizeReason.OVERDUE:
        return share.state is ShareState.REVOKING and share.is_overdue
    is_there = node is not None and node.incarnation == owner.incarnation
    if reason is SeizeReason.REPLACED:
        return not is_there
    return node is not None and is_there and is_silent(node.since, node.ttl, grace)
