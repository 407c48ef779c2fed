"""Work that is done to its end though its task is cancelled, once or again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end; a cancellation meanwhile is passed on afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
