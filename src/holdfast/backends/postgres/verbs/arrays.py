"""Long arrays of numbers as parameters."""

from __future__ import annotations

from collections.abc import Iterable


def numbers(values: Iterable[int]) -> str:
    """Return an array as its text: the driver looks at each element of a list, which costs more than the statement."""
    return f"{{{','.join(map(str, values))}}}"
