"""A consumer's share of a partition, as stored, and its state after each transition.

The verbs lock rows, change them here and write them back. `model.allocation` defines the states; `model.move_guard`
decides which moves are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.sql.steps import Ask, Each, together
from holdfast.model.allocation import KEPT_TRANSITIONS, NodeKey, Share, ShareState, losses_after
from holdfast.store.steps import Steps

_TRIM_EVERY = 100


class ShareRow(NamedTuple):
    """A share under a lock."""

    consumer: str
    category: str
    category_id: int
    partition_id: int
    state: str
    generation: int
    owner: str | None
    incarnation: str | None
    target: str | None
    deadline_at: int | None
    losses: int
    on_trial: bool

    @property
    def share(self) -> Share:
        """The key of the share."""
        return Share(self.consumer, self.category, self.partition_id)

    @property
    def owner_key(self) -> NodeKey | None:
        """The node that owns the share, or None."""
        return None if self.owner is None else NodeKey(self.owner, self.incarnation or "")


Changed = tuple[ShareRow, ShareRow]  # before and after a transition


def granted(row: ShareRow, node: NodeKey) -> ShareRow:
    """Return a free share after it is granted to `node`."""
    owned = row._replace(owner=node.node_id, incarnation=node.incarnation, generation=row.generation + 1)
    return owned._replace(state=ShareState.GRANTED.value, target=None, deadline_at=None, on_trial=False)


def revoked(row: ShareRow, *, target: str | None, deadline_at: int | None) -> ShareRow:
    """Return a share after it is revoked: its owner has to release it."""
    return row._replace(state=ShareState.REVOKING.value, target=target, deadline_at=deadline_at)


def released(row: ShareRow) -> ShareRow:
    """Return a share after its owner has released it: position, generation and target stay."""
    return row._replace(state=ShareState.FREE.value, owner=None, incarnation=None, deadline_at=None)


def taken(row: ShareRow, *, target: str | None = None, is_loss: bool) -> ShareRow:
    """Return a share after it is taken from its owner, which the larger generation fences off."""
    losses = losses_after(row.losses, is_on_trial=bool(row.on_trial)) if is_loss else row.losses
    free = released(row)
    return free._replace(generation=row.generation + 1, target=target or row.target, losses=losses)


def log(changes: Sequence[Changed], epoch: int) -> tuple[Each, Ask]:
    """Return the statements that log changes, and that trim the log when its ids pass a multiple of `_TRIM_EVERY`."""
    steps: list[dict[str, object]] = [
        {
            "consumer": after.consumer,
            "category_id": after.category_id,
            "partition_id": after.partition_id,
            "epoch": epoch,
            "generation": after.generation,
            "old_state": before.state,
            "new_state": after.state,
            "node_id": after.owner or before.owner,
        }
        for before, after in changes
    ]
    trim = {"kept": KEPT_TRANSITIONS, "every": _TRIM_EVERY, "logged": len(steps)}
    return Each("add_transition", steps), Ask("trim_transitions", trim)


def write(changes: Sequence[Changed], epoch: int = 0) -> Steps[None]:
    """Write shares after changes, and log each change; `epoch` is the leader's, or 0 if no leader is involved."""
    last = {after.share: after._asdict() for _, after in changes}
    written = [{name: value for name, value in row.items() if name != "category"} for row in last.values()]
    if written:
        yield from together(Each("write_share", written), *log(changes, epoch))
