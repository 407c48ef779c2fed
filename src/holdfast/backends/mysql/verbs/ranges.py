"""Rows as ranges of numbers without a gap: a range with its limit names exactly its rows, and needs no list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_RANGES = 8  # more of them cost more than a list


class Range(NamedTuple):
    """The numbers from `first` to `last`."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many."""
        return self.last - self.first + 1


def ranges(numbers: Sequence[int]) -> list[Range] | None:
    """Return ascending numbers as ranges; None if there are too many of them."""
    found: list[Range] = []
    for number in numbers:
        if found and number == found[-1].last + 1:
            found[-1] = Range(found[-1].first, number)
        elif len(found) == MOST_RANGES:
            return None
        else:
            found.append(Range(number, number))
    return found
