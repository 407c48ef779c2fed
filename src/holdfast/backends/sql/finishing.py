"""Work that must not be left half-way, however often its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work to its end and return its result; a cancellation is passed on once it is over.

    What it raises then is not told: the caller is gone, and asks the store what became of it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains that it was not
        raise cancelled
    return task.result()
