"""The checker: what nodes did to the events of one category, by the effects, the calls and the steps of shares."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.model.allocation import ShareState
from holdfast.store.stream_values import Transition


class Effect(NamedTuple):
    """A row of the table of effects, which has no unique constraint."""

    partition_id: int
    position: int
    stream: str
    version: int
    node: str
    fence: int


class Call(NamedTuple):
    """One call of a handler, from begin to end (None: it never ended), by the machine's monotonic clock."""

    node: str
    pid: int
    stream: str
    partition_id: int
    position: int
    fence: int
    begun: int
    ended: int | None


def read_calls(record: Path) -> list[Call]:
    """Return the calls that the nodes have noted; a line that is still being written does not count."""
    open_calls: dict[tuple[Any, ...], Call] = {}
    calls: list[Call] = []
    written, _, _ = record.read_text().rpartition("\n")
    for line in written.splitlines():
        what, *who, at = json.loads(line)
        if what == "begin":
            open_calls[tuple(who)] = Call._make([*who, at, None])
        else:
            calls.append(open_calls.pop(tuple(who))._replace(ended=at))
    return [*calls, *open_calls.values()]


def assert_once_in_order(
    effects: Sequence[Effect], heads: Sequence[int], steps: Sequence[Transition], *, calls: Sequence[Call]
) -> None:
    """Every event has one effect, in order; generations and epochs grow; nobody worked beside another."""
    places = sorted((effect.partition_id, effect.position) for effect in effects)
    assert len(places) == len(set(places)), "an event took effect twice"
    assert places == [(part, n) for part, head in enumerate(heads) for n in range(1, head + 1)], "an event is lost"
    assert_fences_grow(effects)
    assert_steps(steps)
    assert_no_overlap(calls)


def assert_fences_grow(effects: Sequence[Effect]) -> None:
    by_partition: dict[int, list[Effect]] = defaultdict(list)
    for effect in sorted(effects):
        by_partition[effect.partition_id].append(effect)
    for part in by_partition.values():
        fences = [effect.fence for effect in part]
        assert fences == sorted(fences), "an effect was written under an older generation than one before it"


def assert_steps(steps: Sequence[Transition]) -> None:
    """No step from owner to owner; generations of a share never fall; nor do the epochs of leaders."""
    last: dict[object, Transition] = {}
    epoch = 0
    for step in steps:
        before = last.get(step.share)
        if before is not None:
            assert before.new_state == step.old_state, f"{before} is followed by {step}"
            assert before.generation <= step.generation
        assert (step.old_state, step.new_state) != (ShareState.GRANTED, ShareState.GRANTED)
        last[step.share] = step
        if step.epoch:
            assert step.epoch >= epoch, "an old leader has changed something"
            epoch = step.epoch


def assert_no_overlap(calls: Sequence[Call]) -> None:
    by_partition: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.begun):
        by_partition[call.partition_id].append(call)
    for ordered in by_partition.values():
        for first, second in itertools.pairwise(ordered):
            if first.ended is not None and first.pid != second.pid:
                assert first.ended <= second.begun, f"{first} overlaps {second}"
