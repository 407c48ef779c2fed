"""The record of the steps that allocations take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.sql.steps import rows, run
from holdfast.model.allocation import AllocationState, Share
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Transition

_FORGET_EVERY = 100


class Step(NamedTuple):
    """A step of an allocation: `generation` is the one after it, `node_id` who owned the share or owns it now."""

    consumer: str
    category_id: int
    partition_id: int
    generation: int
    old_state: str
    new_state: str
    node_id: str | None


def record(steps: Sequence[Step], epoch: int = 0) -> Steps[None]:
    """Note steps."""
    if not steps:
        return
    consumers, category_ids, partition_ids, generations, old_states, new_states, node_ids = zip(*steps, strict=True)
    noted = yield from rows(
        "add_transitions",
        epoch=epoch,
        consumers=list(consumers),
        category_ids=list(category_ids),
        partition_ids=list(partition_ids),
        generations=list(generations),
        old_states=[str(state) for state in old_states],
        new_states=[str(state) for state in new_states],
        node_ids=list(node_ids),
    )
    yield from forget_old([transition_id for (transition_id,) in noted])


def forget_old(noted: Sequence[int]) -> Steps[None]:
    """Now and then, delete all but the last thousand."""
    if any(transition_id % _FORGET_EVERY == 0 for transition_id in noted):
        yield from run("forget_transitions")


def transitions(limit: int) -> Steps[list[Transition]]:
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
        for consumer, category, partition_id, epoch, generation, old_state, new_state, node_id, at in (
            yield from rows("list_transitions", limit=limit)
        )
    ]
