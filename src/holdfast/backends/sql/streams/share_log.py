"""The log of the transitions of shares between states, as operators read it."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.sql.steps import records
from holdfast.model.allocation import Share, ShareState
from holdfast.model.instants import to_datetime
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Transition


class _Logged(NamedTuple):
    consumer: str
    category: str
    partition_id: int
    epoch: int
    generation: int
    old_state: str
    new_state: str
    node_id: str | None
    happened_at: int


def transitions(limit: int) -> Steps[list[Transition]]:
    """List the last steps, newest first."""
    return [
        Transition(
            share=Share(row.consumer, row.category, row.partition_id),
            epoch=row.epoch,
            generation=row.generation,
            old_state=ShareState(row.old_state),
            new_state=ShareState(row.new_state),
            node_id=row.node_id,
            happened_at=to_datetime(row.happened_at),
        )
        for row in (yield from records(_Logged, "list_transitions", limit=limit))
    ]
