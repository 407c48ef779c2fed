"""Leadership: one row with the leader and an epoch that only grows."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from holdfast.backends.sql.steps import records, run
from holdfast.model.allocation import Leadership, NodeKey, can_lead
from holdfast.model.instants import span_micros
from holdfast.store.steps import Steps
from holdfast.store.stream_values import LeaderView


class _LeaderRow(NamedTuple):
    epoch: int
    node_id: str | None
    incarnation: str | None
    until_at: int
    lease_left: int

    @property
    def holder(self) -> NodeKey | None:
        return None if self.node_id is None else NodeKey(self.node_id, self.incarnation or "")


def lead(node: NodeKey, lease: timedelta) -> Steps[Leadership | None]:
    """Take leadership, or extend it.

    The row is written only if it is unchanged since it was read; otherwise it is read again. No lock is held in
    between. A leader that moves shares locks the row, so this write waits for the end of its transaction.
    """
    while True:
        (row,) = yield from records(_LeaderRow, "find_leadership")
        if not can_lead(node, row.holder, left=row.lease_left, lease=span_micros(lease)):
            return None
        epoch = row.epoch if row.holder == node else row.epoch + 1
        taken = {"node_id": node.node_id, "incarnation": node.incarnation, "epoch": epoch, "lease": span_micros(lease)}
        if (yield from run("write_leadership", **taken, seen_epoch=row.epoch, seen_until=row.until_at)):
            return Leadership(node, epoch)


def hold_leadership(leadership: Leadership) -> Steps[bool]:
    """Return whether a leadership is current; no other node can take it until the end of the transaction."""
    return (yield from run("hold_leadership", **_parameters(leadership)))


def resign(leadership: Leadership) -> Steps[bool]:
    """Release leadership."""
    return (yield from run("resign_leadership", **_parameters(leadership)))


def _parameters(leadership: Leadership) -> dict[str, object]:
    node = leadership.node
    return {"node_id": node.node_id, "incarnation": node.incarnation, "epoch": leadership.epoch}


def leader() -> Steps[LeaderView | None]:
    """Return the node that leads or led last."""
    (row,) = yield from records(_LeaderRow, "find_leadership")
    if row.holder is None:
        return None
    return LeaderView(Leadership(row.holder, row.epoch), timedelta(microseconds=row.lease_left))
