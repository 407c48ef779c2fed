"""The log of the transitions of shares between states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.sql.steps import Ask, Each, records
from holdfast.model.allocation import KEPT_TRANSITIONS, AllocationState, Share
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Transition

_TRIM_EVERY = 100


class ShareStep(NamedTuple):
    """A transition of a share. `generation` is the one after it; `node_id` is the new owner, else the previous one."""

    consumer: str
    category_id: int
    partition_id: int
    generation: int
    old_state: str
    new_state: str
    node_id: str | None


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


def log(steps: Sequence[ShareStep], epoch: int) -> tuple[Each, Ask]:
    """Return the statements that log steps, and that trim the log when its ids pass a multiple of `_TRIM_EVERY`."""
    trim = {"kept": KEPT_TRANSITIONS, "every": _TRIM_EVERY, "logged": len(steps)}
    return Each("add_transition", [{**step._asdict(), "epoch": epoch} for step in steps]), Ask("trim_transitions", trim)


def transitions(limit: int) -> Steps[list[Transition]]:
    """List the last steps, newest first."""
    return [
        Transition(
            share=Share(row.consumer, row.category, row.partition_id),
            epoch=row.epoch,
            generation=row.generation,
            old_state=AllocationState(row.old_state),
            new_state=AllocationState(row.new_state),
            node_id=row.node_id,
            at_us=row.happened_at,
        )
        for row in (yield from records(_Logged, "list_transitions", limit=limit))
    ]
