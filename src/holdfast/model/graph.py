"""Jobs that wait for the end of others, their parents: a child's next state, decided from the parents' states alone.

No number of remaining parents is kept: any process may repeat the decision at any time, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from holdfast.errors import ConfigError
from holdfast.model.job import FINAL_STATES, JobState

_SHOWN = 4  # jobs of a cycle that the error names


class ChildMove(StrEnum):
    """The decision on a job that waits for its parents."""

    WAIT = "wait"
    RUN = "run"
    CANCEL = "cancel"


class ParentStates(NamedTuple):
    """What a decision needs of all parents of a job.

    `unfinished`: one of them has not ended. `is_broken`: one of them failed, was cancelled, or was deleted.
    """

    unfinished: bool
    is_broken: bool
    run_anyway: bool


def move_of(parents: ParentStates) -> ChildMove:
    """Decide on a job that waits for its parents."""
    if parents.is_broken and not parents.run_anyway:
        return ChildMove.CANCEL
    return ChildMove.WAIT if parents.unfinished else ChildMove.RUN


def states_of(parents: Iterable[JobState | None], *, run_anyway: bool) -> ParentStates:
    """Return what a decision needs, from the state of each parent; None for one that was deleted."""
    states = set(parents)
    return ParentStates(
        unfinished=not states <= FINAL_STATES | {None},
        is_broken=not states.isdisjoint({JobState.FAILED, JobState.CANCELLED, None}),
        run_anyway=run_anyway,
    )


def reason_of(parent_id: str | None, state: str | None) -> str:
    """Return why a job is cancelled because of this parent."""
    if state is None:
        return "a job that it waited for was deleted; to run it, retry it"
    how = "failed" if state == JobState.FAILED else "was cancelled"
    return f"its parent job {parent_id} {how}; to run both, retry that job"


def reason_of_conflict(holder_id: str, unique_key: str) -> str:
    """Return why a job stays cancelled, although no parent of it is broken any more."""
    holds = f"its parents run again, but job {holder_id} holds its unique key {unique_key!r}"
    return f"{holds}; to run it, retry it after the end of that job"


def check_acyclic(parents: Mapping[str, Sequence[str]]) -> None:
    """Raise `ConfigError` if jobs of one call wait for each other in a cycle; the map has the parents of each."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        named = " → ".join(cycle[:_SHOWN]) + (" → …" if len(cycle) > _SHOWN else "")
        remedy = "remove one of them from the `after` of the next"
        raise ConfigError(f"these jobs wait for each other in a cycle: {named}; {remedy}") from None
