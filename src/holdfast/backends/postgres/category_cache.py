"""Categories by name.

Only what is committed is remembered, for a category is never removed and its partitions never change: one that is made
in a transaction may be rolled back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from holdfast.backends.postgres.runners import PoolRunner
from holdfast.backends.sql.streams.categories import Category, find_categories


class Categories:
    """Remembers the categories of this process."""

    def __init__(self, runner: PoolRunner) -> None:
        self._runner = runner
        self._known: dict[str, Category] = {}

    async def of(self, names: Iterable[str]) -> Mapping[str, Category]:
        """Return those of these categories that there are, and perhaps others."""
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known |= await self._runner.apart(partial(find_categories, unknown))
        return self._known
