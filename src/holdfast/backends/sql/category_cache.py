"""A cache of categories by name.

Only committed categories are cached: they are never removed, and their partitions never change. A category that was
created in an open transaction may still be rolled back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from holdfast.backends.sql.lane_cache import SeparateRunner
from holdfast.backends.sql.streams.categories import find_categories
from holdfast.store.stream_values import Category


class Categories:
    """Caches categories for this process."""

    def __init__(self, runner: SeparateRunner) -> None:
        self._runner = runner
        self._known: dict[str, Category] = {}

    async def of(self, names: Iterable[str]) -> Mapping[str, Category]:
        """Return the cached categories: those of `names` that exist, and possibly others."""
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known |= await self._runner.apart(partial(find_categories, unknown))
        return self._known
