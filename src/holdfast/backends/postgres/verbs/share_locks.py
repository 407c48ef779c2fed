"""Lock timeouts for the leader's moves.

A seizure waits briefly for a transaction of the owner. A call that times out is repeated without waiting: moves whose
rows are locked by other sessions are rejected then, and the others are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.steps import Ask, rows, together
from holdfast.backends.sql.streams.shares import share_lists
from holdfast.model.allocation import GrantTo, Move
from holdfast.store.steps import Steps

_WAIT = 500  # milliseconds for one lock: a verb of an owner takes less, and a failed seizure is planned again
_WAIT_TO_JOIN = 1000  # milliseconds for a transaction of the process that had the same node id


def wait_for_former_owner() -> Steps[None]:
    """Make a joining node wait briefly for a transaction of its older incarnation."""
    yield from rows("wait_at_most", milliseconds=_WAIT_TO_JOIN)


def waiting_briefly(moves: Sequence[Move]) -> Steps[set[Move]]:
    """Make every move wait for its locks; after the timeout, the call fails with the server's lock timeout error."""
    yield from rows("wait_at_most", milliseconds=_WAIT)
    return set(moves)


def without_waiting(moves: Sequence[Move]) -> Steps[set[Move]]:
    """Lock the rows of moves without waiting for other sessions; return the moves whose rows are all locked here."""
    yield from rows("wait_at_most", milliseconds=_WAIT)
    shares = sorted({move.share for move in moves})
    found, consumers = yield from together(
        Ask("free_shares", share_lists(shares)),
        Ask("locked_consumers", {"consumers": sorted({share.consumer for share in shares})}),
    )
    owners = {shares[int(place) - 1]: owner for place, owner in found}
    nodes_of = {
        move: move.node.node_id if isinstance(move, GrantTo) else owners[move.share]
        for move in moves
        if move.share in owners
    }
    node_ids = sorted({node_id for node_id in nodes_of.values() if node_id is not None})
    elsewhere = {name for (name,) in (yield from rows("locked_nodes", node_ids=node_ids))}
    away = {name for (name,) in consumers}
    return {move for move, node_id in nodes_of.items() if node_id not in elsewhere and move.share.consumer not in away}
