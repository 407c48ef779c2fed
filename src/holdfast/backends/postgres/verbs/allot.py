"""What the leader sees, and the moves that it asks for.

The moves of a call are judged one after the other, on rows that are locked first: consumers, nodes, shares, each
kind in order. A seizure waits for a transaction of the owner, for a moment; a revocation does not wait for it. A call
that has waited in vain is repeated without waiting: the moves whose rows are locked elsewhere are refused then, and the
others are carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.backends.postgres.verbs.consumers import partitions_of
from holdfast.backends.postgres.verbs.nodes import hold_leadership, nodes
from holdfast.backends.postgres.verbs.transitions import Step, record
from holdfast.backends.sql.steps import Ask, Rows, rows, run, together
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
    losses_after,
)
from holdfast.model.instants import span_micros
from holdfast.model.move_guard import NodeSeen, ShareSeen, node_in_question, still_holds
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Allotted, Survey

_FORGET_NODES_AFTER = timedelta(days=1)
_WAIT = 500  # milliseconds for one lock: a verb of an owner takes less, and a seizure in vain is planned again


def survey() -> Steps[Survey]:
    """Return all that the allocator looks at."""
    seen_nodes = yield from nodes()
    allocations = yield from rows("list_allocations")
    paused = yield from rows("paused_consumers")
    lacking = yield from _lacking()
    return Survey(
        nodes=tuple(seen_nodes),
        allocations=tuple(
            Allotted(
                share=Share(consumer, category, partition_id),
                state=AllocationState(state),
                generation=generation,
                owner=None if owner is None else NodeKey(owner, incarnation),
                target=target,
                overdue=overdue,
            )
            for consumer, category, partition_id, state, generation, owner, incarnation, target, overdue in allocations
        ),
        paused=frozenset(name for (name,) in paused),
        is_complete=not lacking,
    )


def _lacking() -> Steps[list[tuple[str, int, int, int]]]:
    """Return the shares that there should be and are not: consumer, category, partition, first generation."""
    return [
        (consumer, category_id, partition_id, generation)
        for consumer, category_id, partition_id, stream, generation, partitions in (yield from rows("lacking_shares"))
        if partition_id in partitions_of(stream, partitions)
    ]


def complete_shares(leadership: Leadership) -> Steps[int | None]:
    """Make the shares that there should be, at the beginning: their categories are newer than the subscriptions.

    And forget the nodes that are not there any more.
    """
    if not (yield from hold_leadership(leadership)):
        return None
    yield from rows("hold_consumers", consumers=None)
    lacking = yield from _lacking()
    made: Rows = []
    if lacking:
        made = yield from rows(
            "add_allocations",
            consumers=[share[0] for share in lacking],
            category_ids=[share[1] for share in lacking],
            partition_ids=[share[2] for share in lacking],
            generations=[share[3] for share in lacking],
            position_ids=[0] * len(lacking),
        )
    yield from run("forget_silent_nodes", span=span_micros(_FORGET_NODES_AFTER))
    return len(made)


# --- moves ------------------------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A node as it is now."""

    incarnation: str
    draining: bool
    beat_at: int
    ttl: int


class _Row:
    """An allocation as it is now, and as the moves leave it."""

    def __init__(self, share: Share, columns: Sequence[Any]) -> None:
        self.share = share
        self.category_id: int = columns[0]
        self.state = AllocationState(columns[1])
        self.generation: int = columns[2]
        self.owner = None if columns[3] is None else NodeKey(columns[3], columns[4])
        self.target: str | None = columns[5]
        self.deadline: int | None = columns[6]
        self.losses: int = columns[7]
        self.is_trying: bool = columns[8]
        self.is_changed = False


class _Court:
    """Carries out each move that still holds by what is locked, after those before it."""

    def __init__(
        self, now: int, grace: int, paused: set[str], seen_nodes: dict[str, _Node], seen: dict[Share, _Row]
    ) -> None:
        self._now = now
        self._grace = grace
        self._paused = paused
        self._nodes = seen_nodes
        self._rows = seen
        self.steps: list[Step] = []

    def take(self, move: Move) -> bool:
        """Carry a move out; False if what it was planned on does not hold."""
        row = self._rows.get(move.share)
        if row is None:
            return False
        node = self._node(node_in_question(move, row.owner))
        if not still_holds(move, self._seen(row), node, grace=self._grace):
            return False
        match move:
            case GrantTo(node=taker):
                row.owner, row.target, row.deadline, row.is_trying = taker, None, None, False
                row.generation += 1
                self._note(row, AllocationState.GRANTED, taker)
            case Revoke(drain=drain, target=target):
                row.target = target
                row.deadline = None if drain is None else self._now + span_micros(drain)
                self._note(row, AllocationState.REVOKING, row.owner)
            case Seize():
                owner, row.owner, row.deadline = row.owner, None, None
                row.generation += 1
                row.losses = losses_after(row.losses, is_trying=row.is_trying)
                self._note(row, AllocationState.FREE, owner)
            case _:
                raise AssertionError(move)
        return True

    def _seen(self, row: _Row) -> ShareSeen:
        is_overdue = row.deadline is not None and row.deadline < self._now
        is_paused = row.share.consumer in self._paused
        return ShareSeen(row.state, row.generation, row.owner, is_overdue=is_overdue, is_paused=is_paused)

    def _node(self, node_id: str | None) -> NodeSeen | None:
        node = None if node_id is None else self._nodes.get(node_id)
        if node is None:
            return None
        return NodeSeen(node.incarnation, is_draining=node.draining, since=self._now - node.beat_at, ttl=node.ttl)

    def _note(self, row: _Row, state: AllocationState, node: NodeKey | None) -> None:
        share, node_id = row.share, None if node is None else node.node_id
        step = Step(share.consumer, row.category_id, share.partition_id, row.generation, row.state, state, node_id)
        self.steps.append(step)
        row.state = state
        row.is_changed = True


def allot(
    leadership: Leadership, moves: Sequence[Move], grace: timedelta, *, waits: bool = True
) -> Steps[list[bool] | None]:
    """Carry out moves, each only if what it was planned on still holds.

    Fails with the server's error for a lock timeout if another session keeps a row locked; with `waits=False` it
    refuses the moves that need such a row.
    """
    if not (yield from hold_leadership(leadership)):
        return None
    if not moves:
        return []
    yield from rows("wait_at_most", milliseconds=_WAIT)
    if not waits:
        free = yield from _lockable(moves)
        done = iter((yield from _carry_out(leadership, [move for move in moves if move in free], grace)))
        return [move in free and next(done) for move in moves]
    return (yield from _carry_out(leadership, moves, grace))


def _lockable(moves: Sequence[Move]) -> Steps[set[Move]]:
    """Lock what moves need as far as no other session has, without waiting; return the moves for which that is all."""
    shares = sorted({move.share for move in moves})
    found, consumers = yield from together(
        Ask("free_shares", names_of(shares)),
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


def _carry_out(leadership: Leadership, moves: Sequence[Move], grace: timedelta) -> Steps[list[bool]]:
    consumers = yield from rows("hold_consumers", consumers=sorted({move.share.consumer for move in moves}))
    seen_nodes = yield from _lock_nodes(moves)
    seen, now = yield from _lock_shares(moves)
    court = _Court(now, span_micros(grace), {name for name, paused in consumers if paused}, seen_nodes, seen)
    verdicts = [court.take(move) for move in moves]
    changed = [row for row in seen.values() if row.is_changed]
    if changed:
        yield from _write(changed)
        yield from record(court.steps, leadership.epoch)
    return verdicts


def _lock_nodes(moves: Sequence[Move]) -> Steps[dict[str, _Node]]:
    """Lock the nodes that moves speak of; those that may be seized from for their silence cannot report meanwhile."""
    owned = {move.share for move in moves if not isinstance(move, GrantTo)}
    silent = {move.share for move in moves if isinstance(move, Seize) and move.reason is SeizeReason.SILENT}
    held, still = yield from together(Ask("owners_of", names_of(owned)), Ask("owners_of", names_of(silent)))
    node_ids = {name for (name,) in held} | {move.node.node_id for move in moves if isinstance(move, GrantTo)}
    found = yield from together(
        Ask("still_nodes", {"node_ids": sorted(name for (name,) in still)}),
        Ask("hold_nodes", {"node_ids": sorted(node_ids)}),
    )
    return {node_id: _Node(*columns) for answer in found for node_id, *columns in answer}


def _lock_shares(moves: Sequence[Move]) -> Steps[tuple[dict[Share, _Row], int]]:
    seized = sorted({move.share for move in moves if isinstance(move, Seize)})
    others = sorted({move.share for move in moves} - set(seized))
    waited, locked, ((now,),) = yield from together(
        Ask("lock_shares_to_seize", names_of(seized)), Ask("lock_shares", names_of(others)), Ask("store_clock", {})
    )
    found = [(seized, row) for row in waited] + [(others, row) for row in locked]
    seen = [_Row(shares[int(place) - 1], columns) for shares, (place, *columns) in found]
    return {row.share: row for row in seen}, now


def names_of(shares: Iterable[Share]) -> dict[str, object]:
    """Return the parameters that name shares in a statement, in ascending order."""
    listed = sorted(shares)
    return {
        "consumers": [share.consumer for share in listed],
        "categories": [share.category for share in listed],
        "partition_ids": [share.partition_id for share in listed],
    }


def _write(changed: Sequence[_Row]) -> Steps[bool]:
    def column(get: Callable[[_Row], object]) -> list[object]:
        return [get(row) for row in changed]

    return (
        yield from run(
            "write_shares",
            consumers=column(lambda row: row.share.consumer),
            category_ids=column(lambda row: row.category_id),
            partition_ids=column(lambda row: row.share.partition_id),
            states=column(lambda row: row.state.value),
            generations=column(lambda row: row.generation),
            owners=column(lambda row: None if row.owner is None else row.owner.node_id),
            incarnations=column(lambda row: None if row.owner is None else row.owner.incarnation),
            targets=column(lambda row: row.target),
            deadlines=column(lambda row: row.deadline),
            losses=column(lambda row: row.losses),
            trying=column(lambda row: row.is_trying),
        )
    )
