"""Two operations at once, statement by statement, in every order and with every ending.

Whatever the order, the outcome is that of one operation after the other, or as if one that was rolled back had never
been; the job lies in one table; fences grow; attempts have no gap.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
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
    "completed": ["prune", "enqueue", "cancel", "retry", "complete", "verify", "claim"],
    "failed": ["prune", "retry", "cancel", "enqueue", "claim", "failed", "complete"],
    "cancelled": ["prune", "retry", "cancel", "enqueue", "claim", "retried"],
    "two": ["complete mixed", "retried mixed", "release both", "rescue", "claim", "cancel"],
}
PAIRS = [
    pytest.param(state, pair, id=f"{state}: {pair[0]} x {pair[1]}")
    for state, names in TOGETHER.items()
    for pair in combinations_with_replacement(names, 2)
]


@pytest.mark.parametrize(("state", "pair"), PAIRS)
def test_two_operations_at_once_come_to_one_after_the_other(
    explore: Explore, state: str, pair: tuple[str, str]
) -> None:
    assert explore(lambda arena: arena.explore(state, pair)) >= 2
