"""Nodes, leadership and the owners of shares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_never

from holdfast.model.allocation import (
    GrantTo,
    Leadership,
    Move,
    NodeKey,
    Revoke,
    Seize,
    SeizeReason,
    ShareState,
    Timing,
    losses_after,
)
from holdfast.model.instants import span_micros
from holdfast.store.stream_values import NewNode, OwnedShares
from holdfast.testing.reference.streams import views
from holdfast.testing.reference.streams.operators import Operators
from holdfast.testing.reference.streams.records import NodeRecord, ReferenceShare

_FORGET_NODES_AFTER = timedelta(days=1)


class StreamReference(Operators):
    """The reference model for streams: every verb of the port for streams."""

    # -- nodes

    def join(self, new: NewNode) -> None:
        """Register a node, or a new incarnation of it."""
        if self.is_registered(new.node):
            self.heartbeat(new.node, new.timing)
            return
        for row in self._held_by(new.node.node_id):
            self.free_share(row)
            row.target = new.node.node_id
            row.losses = losses_after(row.losses, is_on_trial=row.is_on_trial)
        ttl_us = span_micros(new.timing.ttl)
        self.nodes[new.node.node_id] = NodeRecord(new, joined_us=self.now, seen_us=self.now, ttl_us=ttl_us)

    def heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:
        """Record a heartbeat of a node; return the shares that it owns."""
        if not self.is_registered(node):
            return OwnedShares(is_known=False)
        record = self.nodes[node.node_id]
        record.seen_us = self.now
        record.ttl_us = span_micros(timing.ttl)
        return self.owned(node)

    def owned(self, node: NodeKey) -> OwnedShares:
        """Return the shares that a node owns."""
        if not self.is_registered(node):
            return OwnedShares(is_known=False)
        return OwnedShares(is_known=True, owned=tuple(views.owned(self, row) for row in self._held_by(node.node_id)))

    def leave(self, node: NodeKey, *, is_lost: bool = False) -> None:
        """Deregister a node."""
        if self.is_registered(node):
            for row in self._held_by(node.node_id):
                losses = losses_after(row.losses, is_on_trial=row.is_on_trial) if is_lost else row.losses
                self.free_share(row)
                row.losses = losses
            del self.nodes[node.node_id]

    def drain(self, node: NodeKey) -> None:
        """Mark a node as about to leave."""
        if self.is_registered(node):
            self.nodes[node.node_id].is_draining = True

    def _held_by(self, node_id: str) -> list[ReferenceShare]:
        """Return the shares that a node owns; none belongs to an older incarnation."""
        return [row for _, row in sorted(self.rows.items()) if row.owner is not None and row.owner.node_id == node_id]

    # -- leadership

    def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Take leadership, or extend it."""
        if self.holder != node:
            if self.holder is not None and 0 <= self.lease_until_us - self.now <= 2 * span_micros(lease):
                return None
            self.epoch += 1
            self.holder = node
        self.lease_until_us = self.now + span_micros(lease)
        return Leadership(node, self.epoch)

    def leads(self, leadership: Leadership) -> bool:
        """Whether this leadership was neither taken over nor resigned."""
        return (leadership.node, leadership.epoch) == (self.holder, self.epoch)

    def resign(self, leadership: Leadership) -> bool:
        """Resign from leadership."""
        if not self.leads(leadership):
            return False
        self.holder = None
        return True

    # -- allocation

    def complete_shares(self, leadership: Leadership) -> int | None:
        """Create the missing free shares of consumers."""
        if not self.leads(leadership):
            return None
        missing = [share for share in self.expected_shares() if share not in self.rows]
        for share in missing:
            self.create_share(share, 0)
        for node_id, record in list(self.nodes.items()):
            if self.now - record.seen_us > span_micros(_FORGET_NODES_AFTER) and not self._held_by(node_id):
                del self.nodes[node_id]
        return len(missing)

    def move_shares(self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta) -> list[bool] | None:
        """Carry out moves; True for each that took effect."""
        if not self.leads(leadership):
            return None
        return [self._move(move, span_micros(grace)) for move in moves]

    def _move(self, move: Move, grace_us: int) -> bool:
        row = self.rows.get(move.share)
        if row is None or row.generation != move.generation:
            return False
        match move:
            case GrantTo(node=node):
                return self._grant(row, node)
            case Revoke(drain=drain, target=target):
                return self._revoke(row, drain, target)
            case Seize(reason=reason):
                return self._seize(row, reason, grace_us)
            case _:
                raise TypeError(move)

    def _grant(self, row: ReferenceShare, node: NodeKey) -> bool:
        is_open = row.state is ShareState.FREE and not self.consumer(row.share.consumer).paused
        if not is_open or not self.is_live(node) or self.nodes[node.node_id].is_draining:
            return False
        row.generation += 1
        row.owner, row.target = node, None
        row.is_on_trial = False
        self.step(row, ShareState.GRANTED, node=node, epoch=self.epoch)
        return True

    def _revoke(self, row: ReferenceShare, drain: timedelta | None, target: str | None) -> bool:
        if row.state is not ShareState.GRANTED:
            return False
        row.deadline_us = None if drain is None else self.now + span_micros(drain)
        row.target = target
        self.step(row, ShareState.REVOKING, node=row.owner, epoch=self.epoch)
        return True

    def _seize(self, row: ReferenceShare, reason: SeizeReason, grace_us: int) -> bool:
        if row.owner is None or not self._is_true(reason, row, row.owner, grace_us):
            return False
        self.free_share(row, epoch=self.epoch)
        row.losses = losses_after(row.losses, is_on_trial=row.is_on_trial)
        return True

    def _is_true(self, reason: SeizeReason, row: ReferenceShare, owner: NodeKey, grace_us: int) -> bool:
        match reason:
            case SeizeReason.SILENT:
                return self.is_registered(owner) and self.is_silent(owner, grace_us)
            case SeizeReason.REPLACED:
                return not self.is_registered(owner)
            case SeizeReason.OVERDUE:
                return views.is_overdue(self, row)
            case _:
                assert_never(reason)
