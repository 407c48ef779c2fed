"""The record of the steps that allocations take."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.model.allocation import AllocationState, Share
from holdfast.store.stream_values import Transition

_FORGET_EVERY = 100


class Row(NamedTuple):
    """An allocation before a step."""

    consumer: str
    category_id: int
    partition_id: int
    state: str
    generation: int
    owner: str | None

    @property
    def place(self) -> dict[str, object]:
        """The allocation as parameters of a statement."""
        return {"consumer": self.consumer, "category_id": self.category_id, "partition_id": self.partition_id}


def record(
    tx: Tx, row: Row, state: AllocationState, generation: int, *, node: str | None = None, epoch: int = 0
) -> None:
    """Note a step; `node` is who owns the share now, if anybody does."""
    names = {
        **row.place,
        "epoch": epoch,
        "generation": generation,
        "old_state": row.state,
        "new_state": state.value,
        "node_id": node or row.owner,
        "now": tx.now,
    }
    tx.run("add_transition", names)
    if generation % _FORGET_EVERY == 0:
        tx.run("forget_transitions")


def transitions(tx: Tx, limit: int) -> list[Transition]:
    """List the last steps, newest first."""
    return [
        Transition(
            share=Share(consumer, category, partition_id),
            epoch=epoch,
            generation=generation,
            old_state=AllocationState(old_state),
            new_state=AllocationState(new_state),
            node_id=node_id,
            at_us=at,
        )
        for consumer, category, partition_id, epoch, generation, old_state, new_state, node_id, at in tx.rows(
            "list_transitions", {"limit": limit}
        )
    ]
