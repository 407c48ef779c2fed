"""A value for each event loop that asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes the value at its first use in a loop; values of ended loops are dropped when the next one is made."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            for ended in [other for other in list(self._values) if other.is_closed()]:
                self._values.pop(ended, None)
            value = self._values[loop] = self._make(loop)
        return value
