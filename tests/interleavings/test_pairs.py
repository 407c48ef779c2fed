"""Two operations at once, statement by statement, in every order and with every ending.

Whatever the order, the outcome is that of one operation after the other, or as if one that was rolled back had never
been; the job lies in one table; fences grow; attempts have no gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement, product

import pytest
from _pytest.mark.structures import ParameterSet
from tests.interleavings.conftest import Explore

TOGETHER = {
    "absent": ["enqueue", "enqueue both", "enqueue both, second first", "claim", "cancel", "retry"],
    "ready": [
        *("claim", "cancel", "enqueue", "retry", "promote", "reset", "rescue"),
        *("stale complete", "stale retried", "stale extend", "stale release"),
    ],
    "due": ["promote", "claim", "cancel", "enqueue", "retry", "retried"],
    "running": [
        *("extend", "extend many", "complete", "complete inside", "retried", "failed", "release", "rescue"),
        *("rescue worker", "reset", "cancel", "retry", "claim", "promote", "prune", "enqueue", "verify", "progress"),
        *("complete, then enqueue", "stale complete", "stale retried", "stale extend", "stale extend many"),
        *("stale release", "stale complete inside"),
    ],
    "asked": ["complete", "retried", "failed", "release", "rescue", "reset", "cancel", "retry", "extend many", "claim"],
    "completed": ["delete", "prune", "enqueue", "cancel", "retry", "reset", "complete", "verify", "claim"],
    "failed": ["delete", "prune", "retry", "reset", "cancel", "enqueue", "claim", "failed", "complete"],
    "cancelled": ["delete", "prune", "retry", "cancel", "enqueue", "claim", "retried"],
    "two": ["complete mixed", "retried mixed", "release both", "rescue", "claim", "cancel", "cancel both"],
}
# Who changes a line, and who else is about: each of the first with all of both.
AROUND_LINES = {
    "no line": (["enqueue third", "enqueue x, y", "enqueue y, none, x"], ["enqueue fourth", "enqueue y, x", "claim"]),
    "line": (
        ["enqueue third", "cancel second", "complete", "failed"],
        [
            *("complete inside", "retried", "release", "rescue", "reset", "cancel", "claim", "stale complete"),
            *("complete, then enqueue third", "enqueue y, x", "cancel both"),
        ],
    ),
    "line alone": (["enqueue third", "complete"], ["complete inside", "failed", "cancel", "enqueue fourth", "rescue"]),
    "line at last": (["rescue"], ["rescue worker", "release", "complete", "cancel second", "enqueue third"]),
    "line ready": (["cancel", "cancel both", "enqueue third"], ["cancel second", "claim", "enqueue x, y", "reset"]),
    "line failed": (["retry", "enqueue third"], ["delete", "cancel both", "prune", "cancel", "cancel second", "claim"]),
    "lines": (["complete x, y", "failed y, x"], ["rescue", "enqueue fourth", "cancel second", "cancel"]),
}


# What every worker and every producer does all day: two of these at once are tried with each change, and both commit.
# `make test-slow` tries all pairs, with every ending.
USUAL = {
    *("enqueue", "enqueue both", "claim", "extend many", "complete", "complete inside", "retried", "release", "rescue"),
    *("promote", "cancel", "stale complete", "stale extend many", "stale complete inside"),
    *("enqueue third", "complete x, y", "complete mixed"),
}


def _pairs() -> Iterator[tuple[str, tuple[str, str]]]:
    for state, names in TOGETHER.items():
        yield from ((state, pair) for pair in combinations_with_replacement(names, 2))
    for state, (first, others) in AROUND_LINES.items():
        yield from ((state, pair) for pair in [*combinations_with_replacement(first, 2), *product(first, others)])


def _named(pairs: Iterable[tuple[str, tuple[str, str]]]) -> list[ParameterSet]:
    return [pytest.param(state, pair, id=f"{state}: {pair[0]} x {pair[1]}") for state, pair in pairs]


@pytest.mark.parametrize(("state", "pair"), _named(pair for pair in _pairs() if USUAL.issuperset(pair[1])))
def test_two_usual_operations_at_once_come_to_one_after_the_other(
    explore: Explore, state: str, pair: tuple[str, str]
) -> None:
    assert explore(state, pair, rolls_back=False).number >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("state", "pair"), _named(_pairs()))
def test_two_operations_at_once_come_to_one_after_the_other(
    explore: Explore, state: str, pair: tuple[str, str]
) -> None:
    assert explore(state, pair).number >= 2 ** len(pair)


def test_sides_that_wait_for_each_other_are_broken_off_and_come_through(explore: Explore) -> None:
    seen = explore("absent", ["enqueue both", "enqueue both, second first"])
    assert seen.waited
    assert seen.broken_off


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ("no line", ("enqueue y", "enqueue y, x", "enqueue x, y")),
        ("lines", ("enqueue x, y", "complete x, y", "enqueue y")),
    ],
    ids=str,
)
def test_whoever_needs_several_lines_takes_them_in_one_order(
    explore: Explore, state: str, names: tuple[str, ...]
) -> None:
    """While the first holds a line, one waits for it with nothing in hand, and another with the other line."""
    seen = explore(state, names, rolls_back=False)
    assert seen.waited
    assert not seen.broken_off


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("state", "pair"),
    [
        ("ready", ("claim", "cancel")),
        ("running", ("complete inside", "release")),
        ("line", ("complete inside", "enqueue third")),
    ],
    ids=str,
)
def test_orders_that_are_left_out_have_no_outcome_of_their_own(
    explore: Explore, state: str, pair: tuple[str, str]
) -> None:
    some, every = explore(state, pair), explore(state, pair, every=True)
    assert some.number < every.number
    assert some.outcomes == every.outcomes
