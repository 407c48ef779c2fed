"""Positions with gaps, as in Kafka, counted: the n-th event of a partition gets the position n.

Markers of transactions and aborted records take offsets. A position of a share means the events up to it, so it becomes
their number. A position of an event means this event: where there is none, it becomes 0, which fits nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from holdfast.torture.streams.checker.facts import Partition, StreamFacts

replaced = msgspec.structs.replace


class CountedPositions:
    """The positions of the events of all partitions."""

    def __init__(self, positions: dict[Partition, list[int]]) -> None:
        self._positions = positions

    def up_to(self, category: str, partition: int, position: int) -> int:
        """Return how many events there are up to a position."""
        return bisect_right(self._positions.get((category, partition), []), position)

    def of(self, category: str, partition: int, position: int) -> int:
        """Return the number of the event at a position, 0 if there is none."""
        number = self.up_to(category, partition, position)
        return number if number and self._positions[category, partition][number - 1] == position else 0


def count_positions(facts: StreamFacts) -> None:
    """Replace all positions in the facts, whose events are sorted."""
    counted = CountedPositions({place: [row.position for row in rows] for place, rows in facts.events.items()})

    def event(row: Any) -> Any:
        return replaced(row, position=counted.of(row.category, row.partition, row.position))

    def share(row: Any) -> Any:
        return replaced(row, position=counted.up_to(row.category, row.partition, row.position))

    def commit(row: Any) -> Any:
        return replaced(share(row), after=counted.up_to(row.category, row.partition, row.after))

    def seen(row: Any) -> Any:
        return replaced(share(row), effect=counted.up_to(row.category, row.partition, row.effect))

    for groups, change in (
        (facts.effects, event),
        (facts.handled, event),
        (facts.parked, event),
        (facts.commits, commit),
        (facts.events, event),
    ):
        _change(groups.values(), change)
    facts.by_id = {row.event: row for rows in facts.events.values() for row in rows}
    facts.shares = {key: share(row) for key, row in facts.shares.items()}
    facts.snapshots = [replaced(each, shares=tuple(map(seen, each.shares))) for each in facts.snapshots]
    facts.answers = [replaced(each, places=tuple(map(event, each.places))) for each in facts.answers]


def _change(lists: Iterable[list[Any]], change: Callable[[Any], Any]) -> None:
    for each in lists:
        each[:] = map(change, each)
