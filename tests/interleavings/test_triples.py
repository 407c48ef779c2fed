"""Three operations at once, where a third can come between two: taken away and claimed anew, pruned and put in anew."""

from __future__ import annotations

import pytest
from tests.interleavings.conftest import ON_POSTGRES, Explore

TRIPLES = [
    ("absent", "enqueue", "enqueue", "enqueue"),
    ("absent", "enqueue", "claim", "cancel"),
    ("ready", "claim", "claim", "cancel"),
    ("ready", "claim", "stale complete", "stale extend"),
    ("due", "promote", "claim", "cancel"),
    ("due", "promote", "promote", "claim"),
    ("running", "complete", "rescue", "claim"),
    ("running", "complete inside", "rescue", "claim"),
    ("running", "retried", "rescue", "claim"),
    ("running", "release", "cancel", "claim"),
    ("running", "extend", "rescue", "claim"),
    ("running", "extend many", "rescue", "rescue worker"),
    ("running", "complete", "complete", "rescue"),
    ("running", "stale complete", "rescue", "claim"),
    ("running", "complete", "cancel", "retry"),
    ("running", "reset", "complete", "claim"),
    ("completed", "prune", "enqueue", "claim"),
    ("failed", "retry", "retry", "claim"),
    ("failed", "retry", "cancel", "claim"),
    ("failed", "prune", "enqueue", "enqueue"),
    ("cancelled", "retry", "cancel", "claim"),
    ("no line", "enqueue third", "enqueue fourth", "enqueue x, y"),
    ("line", "complete", "enqueue third", "enqueue fourth"),
    ("line", "complete", "cancel second", "enqueue third"),
    ("line", "complete", "rescue", "enqueue third"),
    ("line", "failed", "cancel second", "claim"),
    ("line alone", "complete", "enqueue third", "enqueue fourth"),
    ("line alone", "failed", "enqueue third", "claim"),
    ("line alone", "rescue", "complete", "enqueue third"),
    ("line at last", "rescue", "cancel second", "enqueue third"),
    ("line failed", "retry", "enqueue third", "cancel second"),
]
# Those of `make test-slow`; `make exhaustive` runs them all.
OFTEN = {
    ("running", "complete inside", "rescue", "claim"),
    ("line", "complete", "rescue", "enqueue third"),
    ("failed", "retry", "cancel", "claim"),
}


@pytest.mark.timeout(1200)
@ON_POSTGRES
@pytest.mark.parametrize(
    ("state", "first", "second", "third"),
    [pytest.param(*each, marks=pytest.mark.slow if each in OFTEN else pytest.mark.torture) for each in TRIPLES],
)
def test_three_operations_at_once_come_to_one_after_the_other(
    explore: Explore, state: str, first: str, second: str, third: str
) -> None:
    assert explore(state, [first, second, third], rolls_back=False).number >= 6
