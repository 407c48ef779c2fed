"""What the leader sees, and the moves that it asks for.

The moves of a call are judged here, one after the other, on rows that are locked first: consumers, nodes, shares, each
kind in order. Who plans a seizure waits for a transaction of the owner; a revocation passes it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.backends.postgres.steps import Ask, Rows, Steps, rows, run, together
from holdfast.backends.postgres.verbs.consumers import partitions_of
from holdfast.backends.postgres.verbs.nodes import hold_leadership, nodes
from holdfast.backends.postgres.verbs.transitions import Step, record
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
    losses_after,
)
from holdfast.model.instants import span_micros
from holdfast.store.stream_values import Allotted, Survey

_FORGET_NODES_AFTER = timedelta(days=1)


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
        self.state: str = columns[1]
        self.generation: int = columns[2]
        self.owner: str | None = columns[3]
        self.incarnation: str | None = columns[4]
        self.target: str | None = columns[5]
        self.deadline: int | None = columns[6]
        self.losses: int = columns[7]
        self.is_trying: bool = columns[8]
        self.is_changed = False


class _Judge:
    """Judges each move by what is locked, after those before it."""

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
        if row is None or row.generation != move.generation:
            return False
        match move:
            case GrantTo():
                return self._grant(move, row)
            case Revoke():
                return self._revoke(move, row)
            case Seize():
                return self._seize(move, row)
            case _:
                raise AssertionError(move)

    def _grant(self, move: GrantTo, row: _Row) -> bool:
        node = self._nodes.get(move.node.node_id)
        if row.state != AllocationState.FREE or move.share.consumer in self._paused or node is None:
            return False
        if node.incarnation != move.node.incarnation or node.draining:
            return False
        if is_silent(self._now - node.beat_at, node.ttl, 0):
            return False
        row.owner, row.incarnation = move.node.node_id, move.node.incarnation
        row.target = row.deadline = None
        row.is_trying = False
        row.generation += 1
        self._note(row, AllocationState.GRANTED, row.owner)
        return True

    def _revoke(self, move: Revoke, row: _Row) -> bool:
        if row.state != AllocationState.GRANTED:
            return False
        row.target = move.target
        row.deadline = None if move.drain is None else self._now + span_micros(move.drain)
        self._note(row, AllocationState.REVOKING, row.owner)
        return True

    def _seize(self, move: Seize, row: _Row) -> bool:
        if row.state == AllocationState.FREE or not self._is_true(move.reason, row):
            return False
        owner = row.owner
        row.owner = row.incarnation = row.deadline = None
        row.generation += 1
        row.losses = losses_after(row.losses, is_trying=row.is_trying)
        self._note(row, AllocationState.FREE, owner)
        return True

    def _is_true(self, reason: SeizeReason, row: _Row) -> bool:
        """Tell whether the reason for a seizure holds by the store's clock, now."""
        if reason is SeizeReason.OVERDUE:
            return row.state == AllocationState.REVOKING and row.deadline is not None and row.deadline < self._now
        node = None if row.owner is None else self._nodes.get(row.owner)
        if reason is SeizeReason.REPLACED:
            return node is None or node.incarnation != row.incarnation
        if node is None or node.incarnation != row.incarnation:
            return False
        return is_silent(self._now - node.beat_at, node.ttl, self._grace)

    def _note(self, row: _Row, state: AllocationState, node_id: str | None) -> None:
        share = row.share
        step = Step(share.consumer, row.category_id, share.partition_id, row.generation, row.state, state, node_id)
        self.steps.append(step)
        row.state = state
        row.is_changed = True


def allot(leadership: Leadership, moves: Sequence[Move], grace: timedelta) -> Steps[list[bool] | None]:
    """Carry out moves, each only if what it was planned on still holds."""
    if not (yield from hold_leadership(leadership)):
        return None
    if not moves:
        return []
    consumers = yield from rows("hold_consumers", consumers=sorted({move.share.consumer for move in moves}))
    seen_nodes = yield from _lock_nodes(moves)
    seen, now = yield from _lock_shares(moves)
    judge = _Judge(now, span_micros(grace), {name for name, paused in consumers if paused}, seen_nodes, seen)
    verdicts = [judge.take(move) for move in moves]
    changed = [row for row in seen.values() if row.is_changed]
    if changed:
        yield from _write(changed)
        yield from record(judge.steps, leadership.epoch)
    return verdicts


def _lock_nodes(moves: Sequence[Move]) -> Steps[dict[str, _Node]]:
    """Lock the nodes that moves speak of; those that may be seized from for their silence cannot report meanwhile."""
    owned = {move.share for move in moves if not isinstance(move, GrantTo)}
    silent = {move.share for move in moves if isinstance(move, Seize) and move.reason is SeizeReason.SILENT}
    held, still = yield from together(Ask("owners_of", _names(owned)), Ask("owners_of", _names(silent)))
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
        Ask("lock_shares_to_seize", _names(seized)), Ask("lock_shares", _names(others)), Ask("store_clock", {})
    )
    found = [(seized, row) for row in waited] + [(others, row) for row in locked]
    seen = [_Row(shares[int(place) - 1], columns) for shares, (place, *columns) in found]
    return {row.share: row for row in seen}, now


def _names(shares: Iterable[Share]) -> dict[str, object]:
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
            states=column(lambda row: str(row.state)),
            generations=column(lambda row: row.generation),
            owners=column(lambda row: row.owner),
            incarnations=column(lambda row: row.incarnation),
            targets=column(lambda row: row.target),
            deadlines=column(lambda row: row.deadline),
            losses=column(lambda row: row.losses),
            trying=column(lambda row: row.is_trying),
        )
    )
